"""A store that refuses: is that because nobody said who asks?"""

from pathlib import Path

import pytest

from awe_client.sdk import objects as client
from awe_server.data import objects as server
from shared_models.object_credentials import CREDENTIALS
from shared_models.object_urls import object_place

SETTINGS = (Path(__file__).resolve().parents[3] / "docs" / "settings.md").read_text(encoding="utf-8")
URLS = {"s3": "s3://bucket/x", "gs": "gs://bucket/x", "az": "az://container/x"}


@pytest.mark.parametrize("scheme", CREDENTIALS)
def test_a_refusal_says_whether_there_are_credentials(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CREDENTIALS[scheme]:
        monkeypatch.delenv(name, raising=False)
    place, refused = object_place(URLS[scheme]), PermissionError("403")

    def said() -> list[str]:
        return [str(server._error_of(refused, place)), str(client._error_of(refused, scheme))]

    first = CREDENTIALS[scheme][0]
    for who, text in zip(("server", "machine"), said(), strict=True):
        end = f"and this {who} has no credentials for it ({first} …: docs/settings.md, Object stores)"
        assert text.endswith(end)
    for name in CREDENTIALS[scheme]:
        monkeypatch.setenv(name, "x")
        assert all("with the credentials of this" in text for text in said())
        monkeypatch.delenv(name)


def test_the_settings_page_has_the_section_and_the_first_variables() -> None:
    section = SETTINGS.partition("\n## Object stores\n")[2].partition("\n## ")[0]
    assert all(f"`{names[0]}`" in section for names in CREDENTIALS.values())

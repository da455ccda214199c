"""What may go wrong with a download, besides what its source itself says."""

from shared_models.errors import AweError


class DownloadCorrupt(AweError):
    """The bytes that arrived are not the bytes that were promised."""

    code = "download_corrupt"


class DownloadCut(AweError):
    """The connection ended before the content did."""

    code = "download_cut"
    retryable = True


class SourceBusy(AweError):
    """The source cannot give the bytes at the moment."""

    code = "source_busy"
    retryable = True


class SourceChanged(AweError):
    """The source changed while it was being used."""

    code = "source_changed"

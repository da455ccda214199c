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


class OutOfReach(AweError):
    """This machine may not use the source, or does not see it; another one may."""

    code = "out_of_reach"


class NotSeen(OutOfReach):
    """This machine does not see the source at the moment; another one may."""

    code = "not_seen"
    retryable = True


class SourceChanged(AweError):
    """The source changed while it was being used."""

    code = "source_changed"

"""A task cannot run with its data as it is."""


class Refused(Exception):
    """The task cannot run with this data; the text says why."""

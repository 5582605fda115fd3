"""The one exception that is the user's to fix: printed as one line, exit code 2."""


class UserError(Exception):
    """Bad input. The message says where, what was expected and what came."""

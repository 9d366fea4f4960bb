"""What a back end takes from the process environment: keys, contact, other addresses.

Values are checked here, before any request, and an error names the variable, never its value.
"""

import os
import re
from urllib.parse import urlsplit

from searchr1.errors import SettingsError

_REPOSITORY = re.compile(r"(github|gitlab|bitbucket|gitee)\.\w+/[^/\s]+/[^/\s]+", re.IGNORECASE)


def secrets(names: tuple[str, ...], purpose: str) -> list[str]:
    """The keys in the first of these variables that is set, split at commas and white space,
    each once.

    Raises:
        SettingsError: none is set, or a key holds characters that no key has.
    """
    for name in names:
        keys = [key for key in re.split(r"[\s,]+", os.environ.get(name, "")) if key]
        if not all(key.isascii() and key.isprintable() for key in keys):
            raise SettingsError(
                f"{name} holds characters that no key has: copy the key again, without quotes "
                "or invisible characters."
            )
        if keys:
            return list(dict.fromkeys(keys))
    raise SettingsError(
        f"{purpose} needs a key: set the environment variable {' or '.join(names)}. "
        "(A recording can be replayed without one: search_cache=replay.)"
    )


def wikipedia_contact() -> str:
    """How Wikimedia can reach the person who runs this: WIKIPEDIA_CONTACT.

    Raises:
        SettingsError: it is missing, or leads to a program's repository and not to a person.
    """
    contact = os.environ.get("WIKIPEDIA_CONTACT", "").strip()
    advice = (
        "set the environment variable WIKIPEDIA_CONTACT to your e-mail address or the address "
        "of your Wikimedia user page. Wikimedia asks for it in every request."
    )
    if not contact:
        raise SettingsError(f"Wikipedia needs to know how to reach you: {advice}")
    if not (contact.isascii() and contact.isprintable()):
        raise SettingsError(f"WIKIPEDIA_CONTACT may only hold plain ASCII characters: {advice}")
    if _REPOSITORY.search(contact):
        raise SettingsError(
            "WIKIPEDIA_CONTACT leads to a program's repository; all users of a program under one "
            f"contact share one strict limit. Instead, {advice}"
        )
    if not re.search(r"\S@\S+\.\S|https?://\S|User:\S", contact):
        raise SettingsError(f"WIKIPEDIA_CONTACT is no e-mail address and no web address: {advice}")
    return contact


def address(name: str, value: str) -> str:
    """A web address without a slash at its end.

    Args:
        name: of the variable or setting that it comes from.

    Raises:
        SettingsError: it is no http or https address, or holds a user name or password: those
            would show up in logs.
    """
    value = value.strip().rstrip("/")
    if not re.match(r"https?://[^\s/]+", value):
        raise SettingsError(f"{name} must be an address that begins with http:// or https://.")
    if urlsplit(value).username is not None:
        raise SettingsError(f"{name} must not hold a user name or password.")
    return value


def address_in(variable: str, default: str) -> str:
    """The address in an environment variable, else `default`; see `address`."""
    return address(variable, os.environ.get(variable, "").strip() or default)

"""Files that hold secrets: the keys of SQS clients."""

from __future__ import annotations

import configparser
from pathlib import Path

from lavant.core.errors import InvalidValue


def read_credentials(path: Path) -> dict[str, str]:
    """Secrets by access key, of all profiles in a file like `~/.aws/credentials`."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(path.read_text(encoding="utf-8"), str(path))
        found = {
            section["aws_access_key_id"]: section["aws_secret_access_key"]
            for section in (parser[name] for name in parser.sections())
        }
    except OSError as error:
        raise InvalidValue(f"cannot read the credentials file {path}: {error.strerror}") from None
    except (configparser.Error, UnicodeDecodeError) as error:
        raise InvalidValue(f"{path} is not like ~/.aws/credentials: {error}") from None
    except KeyError as error:
        raise InvalidValue(f"a profile in {path} has no {error}; each needs both parts of its key") from None
    if not found:
        raise InvalidValue(f"{path} has no profile with a key; write [default], aws_access_key_id and its secret")
    return found

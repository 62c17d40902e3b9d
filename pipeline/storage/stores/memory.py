"""A store in memory: for artifacts that end with their process."""

from factsweep.pipeline.storage.stores.store import Store


class Memory(Store):
    """What the stages read and write of a store, without a disk; each is empty at first."""

    def __init__(self) -> None:
        self.__dict__.update(root="memory", content={})

    def __reduce__(self) -> tuple[type["Memory"], tuple[()]]:  # type: ignore[override]
        return Memory, ()

    @property
    def creates_once(self) -> bool:
        """Nobody else writes it."""
        return True

    @property
    def _files(self) -> dict[str, bytes]:
        found: dict[str, bytes] = self.__dict__["content"]
        return found

    def put(self, name: str, content: bytes) -> None:
        """Keep a file."""
        self._files[name] = content

    def put_new(self, name: str, content: bytes) -> bool:
        """Keep a file unless there is one of that name; whether the file now is `content`."""
        return self._files.setdefault(name, content) == content

    def get(self, name: str) -> bytes:
        """The content of a file."""
        try:
            return self._files[name]
        except KeyError as error:
            raise FileNotFoundError(name) from error

    def end(self, name: str, n_bytes: int) -> bytes:
        """The last bytes of a file, or all of it if it has no more."""
        return self.get(name)[-n_bytes:]

    def exists(self, name: str) -> bool:
        """Whether there is a file."""
        return name in self._files

    def names(self, folder: str) -> list[str]:
        """The files right under a folder, sorted."""
        places = (name.rpartition("/") for name in self._files)
        return sorted(name for place, _, name in places if place == folder)

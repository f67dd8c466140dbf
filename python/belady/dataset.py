"""A dataset by name, path or URL."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Sequence
from operator import index
from typing import Any, Callable, Optional, Union

from belady import daemon, direct, folders, scan
from belady.errors import DaemonUnavailable, UnknownDataset
from belady.manifest import Manifest
from belady.ondemand import OnDemand
from belady.reading import Reading, given_up, learn
from belady.sample import Sample, samples, transformed


class Dataset:
    """The samples below a path or URL, scanned into a manifest.

    `source` is a name that `belady dataset add` was given, or a path or URL, which is then added
    under a name made from it. A path is scanned when it is first used, and again when files came or
    went since. A URL is listed once, and so is what was added by name: `belady dataset add NAME`
    lists it again, with this dataset's `name`.

    `transform` takes a `belady.Sample` and returns what the collate function is given. Without one
    the sample itself is.
    """

    # Whether only images in classes' folders are samples.
    images = False

    def __init__(
        self,
        source: Union[str, os.PathLike[str]],
        transform: Optional[Callable[[Sample], Any]] = None,
    ) -> None:
        if not isinstance(source, (str, os.PathLike)):
            raise TypeError(
                f"a dataset is a name, a path or a URL and not of type {type(source).__name__}:"
                " keep PyTorch's DataLoader for datasets of your own"
            )
        if transform is not None and not callable(transform):
            raise TypeError(f"transform is {transform!r}, but must be a callable or None")
        self.source = os.fspath(source)
        if not self.source:
            raise ValueError("a dataset is a name, a path or a URL, and '' is none of them")
        self.transform = transform
        self._url = _url(source)
        self.name: str = self.source
        if self._url:
            self.name = name_for(self._url) + ("-images" if self.images else "")
        self._manifest: Optional[Manifest] = None
        self._reader: Optional[OnDemand] = None
        self._place: Optional[daemon.Place] = None

    @property
    def manifest(self) -> Manifest:
        """Opened when first asked for; a path or URL is scanned for it if it never was, a path also
        if it changed."""
        if self._manifest is None:
            path = os.path.join(self._folder(), "manifest")
            if self._url:
                self._manifest = self._scanned(path)
            try:
                self._manifest = self._manifest or Manifest(path)
            except FileNotFoundError as e:
                raise UnknownDataset(
                    f"there is no dataset {self.name} in {self.place.dir}: add it with"
                    f" `belady dataset add {self.name} URL`, or give its path"
                ) from e
        return self._manifest

    def _folder(self) -> str:
        return daemon.dataset_dir(self.place, self.name)

    def _scanned(self, path: str) -> Optional[Manifest]:
        """Add the path or URL, if that is due; without a binary that could, a folder is listed
        here."""
        folder, known = direct.folder_of(self._url), os.path.exists(path)
        record = folders.Record(os.path.join(self._folder(), "folders"))
        if known and (folder is None or record.holds(folder)):
            return None

        def done() -> bool:
            return os.path.exists(path) and (not known or record.replaced())

        try:
            added = daemon.add_dataset(self.place, self.name, self._url, self.images, done)
            if known and added:
                folders.say(self.source, added)
            return None
        except DaemonUnavailable as e:
            if folder is None:
                raise
            if known and not self.place.off:  # the daemon knows what was scanned
                print(f"belady: {self.source} changed since it was scanned as {self.name}, and"
                      f" cannot be scanned again: {e}", file=sys.stderr)
                return None
            return scan.folder(folder, self.images)

    @property
    def files(self) -> direct.Files:
        """The samples as this process can read them by itself."""
        manifest, url = self.manifest, self._url
        if not url:
            path = os.path.join(self._folder(), "dataset.json")
            try:
                with open(path, encoding="utf-8") as file:
                    url = str(json.load(file)["url"])
            except (OSError, ValueError, LookupError) as e:
                raise UnknownDataset(
                    f"{path} does not say where dataset {self.name} is: add it again ({e})"
                ) from e
        return direct.Files(manifest, url, self.name)

    @property
    def content(self) -> str:
        """The manifest's content id; empty until the manifest is opened."""
        return "" if self._manifest is None else self._manifest.content

    @property
    def place(self) -> daemon.Place:
        """The daemon's, decided when first asked for; other processes are told."""
        if self._place is None:
            self._place = daemon.find() or daemon.default_place()
        return self._place

    def __len__(self) -> int:
        return len(self.manifest)

    @property
    def classes(self) -> list[str]:
        return self.manifest.classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.classes)}

    @property
    def targets(self) -> Sequence[int]:
        """Every sample's label, as a view of the manifest."""
        return self.manifest.labels

    def name_of(self, id: int) -> str:
        return self.manifest.name(id)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Samples by index, transformed, as stock loaders ask for them: read when asked for.

        `belady.DataLoader` knows what comes next and is much faster.
        """
        ids = [self._checked(index(i)) for i in indices]
        if not ids:
            return []
        if self._reader is None:
            self._reader = OnDemand(self.reading())
        return transformed(samples(self._reader.read(ids), self.manifest), self.item)

    def reading(self) -> Reading:
        """What reads samples by id."""
        order = {"kind": "explicit", "samples": len(self)}
        return Reading(self.name, order, 1, 0, 1, 1, 0.0, True, self.place, self.files)

    def item(self, sample: Sample) -> Any:
        """What a loader is given for a sample."""
        return sample if self.transform is None else self.transform(sample)

    @property
    def raw(self) -> bool:
        """True if items are the samples themselves."""
        return self.transform is None

    def _checked(self, index: int) -> int:
        n = len(self)
        if not -n <= index < n:
            raise IndexError(f"sample {index} of {n}")
        return index % n

    def __repr__(self) -> str:
        return f"belady.Dataset({self.source!r})"

    def __getstate__(self) -> dict[str, Any]:
        known = given_up(self.place.socket)
        return {**self.__dict__, "_reader": None, "_place": self.place, "given_up": known}

    def __setstate__(self, state: dict[str, Any]) -> None:
        known = state.pop("given_up")
        self.__dict__.update(state)
        learn(self.place.socket, known)


def name_for(url: str) -> str:
    """A name for a path or URL: readable, and different for different ones.

    >>> name_for("/data/image net/train")
    'train-5c01e750'
    """
    digest = hashlib.sha256(url.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    last = url.partition("?")[0].rstrip("/").rpartition("/")[2]
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip(".-")[:100]
    return f"{stem or 'dataset'}-{digest}"


def _url(source: Union[str, os.PathLike[str]]) -> str:
    """The URL or absolute path that a source means; '' if it is a name."""
    text = os.fspath(source)
    if "://" in text:
        return text
    if not isinstance(source, str) or os.sep in text or text.startswith(("~", ".")):
        return os.path.abspath(os.path.expanduser(text))
    return ""

"""A dataset by name, path or URL."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Sequence
from operator import index
from typing import Any, Callable, Optional, Union

from belady import daemon, direct, scan
from belady.decode import timed
from belady.errors import DaemonUnavailable, DecoderUnavailable, UnknownDataset
from belady.manifest import Manifest
from belady.ondemand import OnDemand
from belady.reading import Reading, given_up, learn
from belady.sample import Sample, samples, transformed


class Dataset:
    """The samples below a path or URL, scanned once into a manifest.

    `source` is a name that `belady dataset add` was given, or a path or URL, which is then added
    under a name made from it. A path is scanned when it is first used and not again: after changing
    files say `belady dataset add NAME PATH`.

    `transform` takes a `belady.Sample` and returns what the collate function is given. Without one
    the sample itself is.
    """

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
        self.name: str = name_for(self._url) if self._url else self.source
        self._manifest: Optional[Manifest] = None
        self._reader: Optional[OnDemand] = None
        self._place: Optional[daemon.Place] = None

    @property
    def manifest(self) -> Manifest:
        """Opened when first asked for; a path or URL is scanned for it if it never was."""
        if self._manifest is None:
            path = os.path.join(self._folder(), "manifest")
            if self._url and not os.path.exists(path):
                self._manifest = self._scanned()
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

    def _scanned(self) -> Optional[Manifest]:
        """Add the path or URL; without a binary that could, a folder is listed here."""
        try:
            daemon.add_dataset(self.place, self.name, self._url)
            return None
        except DaemonUnavailable:
            folder = direct.folder_of(self._url)
            if folder is None:
                raise
            return scan.folder(folder)

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
        return direct.Files(manifest, url)

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


class ImageFolder(Dataset):
    """torchvision's ImageFolder: items are (image, label), classes are folders.

    Differences: `loader` is given a `belady.Sample` and not a path (by default Pillow decodes it to
    RGB), and every file is a sample, whatever its name ends with.
    """

    def __init__(
        self,
        root: Union[str, os.PathLike[str]],
        transform: Optional[Callable[[Any], Any]] = None,
        target_transform: Optional[Callable[[int], Any]] = None,
        loader: Optional[Callable[[Sample], Any]] = None,
    ) -> None:
        super().__init__(root, transform)
        self.root = self.source
        self.target_transform = target_transform
        self.loader = loader or rgb

    def item(self, sample: Sample) -> Any:
        image, target = self.loader(sample), sample.label
        if self.transform is not None:
            image = self.transform(image)
        return image, target if self.target_transform is None else self.target_transform(target)

    @property
    def raw(self) -> bool:
        return False

    @property
    def samples(self) -> list[tuple[str, int]]:
        """Path and label of every sample, name and label where they are in no folder; a list of
        all of them is made each time."""
        root = direct.folder_of(self.files.url)
        if root is not None and self._url and "://" not in self.root:
            root = os.path.expanduser(self.root)  # as it was given
        return [
            (self.name_of(i) if root is None else os.path.join(root, self.name_of(i)), label)
            for i, label in enumerate(self.targets)
        ]


def rgb(sample: Sample) -> Any:
    """A sample decoded by Pillow, as torchvision's default loader does it."""
    try:
        from PIL import Image  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as e:
        raise DecoderUnavailable(
            "ImageFolder decodes with Pillow, which is not installed: install it, or give"
            " loader=, a function that makes an image of a belady.Sample"
        ) from e
    with timed(sample):
        return Image.open(io.BytesIO(sample.data)).convert("RGB")


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

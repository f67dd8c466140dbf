"""torchvision's ImageFolder, its samples read through the daemon."""

from __future__ import annotations

import io
import os
from typing import Any, Callable, Optional, Union

from belady import direct
from belady.dataset import Dataset
from belady.decode import timed
from belady.errors import DatasetAddFailed, DecoderUnavailable, NoImages, NotYetSupported
from belady.manifest import Manifest
from belady.sample import Sample
from belady.scan import IMAGE_EXTENSIONS


class ImageFolder(Dataset):
    """torchvision's ImageFolder: items are (image, label), classes are folders, samples the files
    in them that have an image's extension. A class without any raises NoImages, which is a
    FileNotFoundError, when the dataset is first used.

    Differences: `loader` is given a `belady.Sample` and not a path (by default Pillow decodes it to
    RGB). `is_valid_file`, and empty classes with `allow_empty`, are not there. Images whose name,
    or a folder's of theirs, begins with a dot are refused, where torchvision takes them.
    """

    images = True

    def __init__(
        self,
        root: Union[str, os.PathLike[str]],
        transform: Optional[Callable[[Any], Any]] = None,
        target_transform: Optional[Callable[[int], Any]] = None,
        loader: Optional[Callable[[Sample], Any]] = None,
        is_valid_file: Optional[Callable[[str], bool]] = None,
        allow_empty: bool = False,
    ) -> None:
        if is_valid_file is not None:
            raise NotYetSupported(
                "is_valid_file= is not there: a dataset is scanned for all who read it. Select"
                " samples with belady.DataLoader's sampler=, or with torch.utils.data.Subset below"
                " belady.attach"
            )
        super().__init__(root, transform)
        self.root = self.source
        self.target_transform = target_transform
        self.loader = loader or rgb
        self._allow_empty = allow_empty

    @property
    def manifest(self) -> Manifest:
        if self._manifest is None:
            try:
                self._manifest = super().manifest
            except DatasetAddFailed as e:
                folder = direct.folder_of(self._url)
                if folder is None or "no samples" not in str(e):
                    raise
                raise _no_images(self.root, _folders(folder)) from e
            root = direct.folder_of(self.files.url)
            known = set(self._manifest.classes)
            empty = [name for name in _folders(root) if name not in known] if root else []
            if empty:
                self._manifest = None
                if self._allow_empty:
                    raise NotYetSupported(
                        f"allow_empty=True: {', '.join(empty)} in {self.root} would be classes"
                        " without images, which a dataset here cannot have: remove the folders"
                    )
                raise _no_images(self.root, empty)
        return self._manifest

    def item(self, sample: Sample) -> Any:
        try:
            image, target = self.loader(sample), sample.label
        except TypeError as e:
            if self.loader is rgb:
                raise
            raise TypeError(
                f"{e} (loader= is given a belady.Sample and not a path: its bytes are .data)"
            ) from e
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

    @property
    def imgs(self) -> list[tuple[str, int]]:
        """`samples`, by torchvision's other name for them."""
        return self.samples


def _folders(root: str) -> list[str]:
    """What torchvision takes for classes: every folder, hidden ones too. None where the root is
    not there: reading says so."""
    try:
        return sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    except OSError:
        return []


def _no_images(root: str, classes: list[str]) -> NoImages:
    """In torchvision's words."""
    if not classes:
        return NoImages(f"Couldn't find any class folder in {root}.")
    return NoImages(
        f"Found no valid file for the classes {', '.join(classes)}. Supported extensions are:"
        f" {', '.join(IMAGE_EXTENSIONS)}"
    )


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

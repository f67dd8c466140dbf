package catalog

import (
	"slices"
	"strings"

	"belady/internal/core/dataset"
)

// imageExtensions are torchvision's IMG_EXTENSIONS.
var imageExtensions = []string{
	".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp",
}

// onlyImages keeps, in place, what torchvision's ImageFolder takes for a sample: files below a
// class's folder whose name ends like an image's, in small letters or large ones.
func onlyImages(objects []dataset.Object) []dataset.Object {
	return slices.DeleteFunc(objects, func(o dataset.Object) bool {
		return !strings.Contains(o.Name, "/") || !slices.ContainsFunc(imageExtensions,
			func(extension string) bool {
				cut := len(o.Name) - len(extension)
				return cut >= 0 && strings.EqualFold(o.Name[cut:], extension)
			})
	})
}

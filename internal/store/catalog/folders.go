package catalog

import (
	"fmt"
	"time"

	"belady/internal/store/origin"
)

// unsure is how coarse a file system's clock may be: a folder that was modified within this time
// before a scan may be modified after it and show the same time.
const unsure = time.Second

// encodeFolders writes each folder as its modification time in nanoseconds since 1970, a space, its
// name and a NUL. The time is 0, which no folder has, where the scan may have seen it too early.
func encodeFolders(folders []origin.Folder, scanned time.Time) []byte {
	var out []byte
	for _, f := range folders {
		modified := f.Modified.UnixNano()
		if f.Modified.After(scanned.Add(-unsure)) {
			modified = 0
		}
		out = fmt.Appendf(out, "%d %s\x00", modified, f.Name)
	}
	return out
}

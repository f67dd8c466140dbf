package jobs

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// maxID is where a long name is cut: a file's name has at most 255 bytes.
const maxID = 160

// ID is the name of a job's file, which is also what people call it by: the job's own name wherever
// that is plain.
func ID(job string) string {
	var b strings.Builder
	for i := range len(job) {
		c := job[i]
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			c == '-' || c == '_' || c == '.' && i > 0
		if plain {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	id := b.String()
	if len(id) < maxID && id != "" {
		return id
	}
	digest := sha256.Sum256([]byte(job))
	return fmt.Sprintf("%s~%x", id[:min(len(id), maxID)], digest[:8])
}

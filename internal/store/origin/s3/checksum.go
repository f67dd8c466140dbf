package s3

import (
	"encoding/base64"
	"hash/crc32"
	"net/http"
	"strings"

	"github.com/minio/crc64nvme"
)

// checksum is what the server keeps beside an object's bytes since they were uploaded, to be
// compared with what arrives: a proxy, a disk or a link may have changed them on the way.
type checksum struct {
	name string
	want string                    // empty: none that is checked
	of   func(bytes []byte) []byte // big-endian, as the protocol has it
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksums are those that are checked: each has instructions of its own and costs 0.1 ns a byte or
// less. The standard library's CRC-64 has none, and cost a fifth of the rate from a near server.
// SHA-1, SHA-256 and an ETag that is an MD5 would cost more than the reading of the bytes.
var checksums = []checksum{
	{name: "X-Amz-Checksum-Crc32",
		of: func(b []byte) []byte { return bigEndian(uint64(crc32.ChecksumIEEE(b)), 4) }},
	{name: "X-Amz-Checksum-Crc32c",
		of: func(b []byte) []byte { return bigEndian(uint64(crc32.Checksum(b, castagnoli)), 4) }},
	{name: "X-Amz-Checksum-Crc64nvme",
		of: func(b []byte) []byte { return bigEndian(crc64nvme.Checksum(b), 8) }},
}

func bigEndian(v uint64, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(v >> (8 * (size - 1 - i)))
	}
	return b
}

// checksumOf finds the checksum of a whole object in the answer that carries it. One of several
// parts (COMPOSITE, a value that ends in -N) is of their checksums, not of the bytes.
func checksumOf(r *http.Response) checksum {
	if r.StatusCode != http.StatusOK {
		return checksum{}
	}
	for _, c := range checksums {
		if c.want = r.Header.Get(c.name); c.want != "" && !strings.Contains(c.want, "-") &&
			r.Header.Get("X-Amz-Checksum-Type") != "COMPOSITE" {
			return c
		}
	}
	return checksum{}
}

// fits reports whether bytes are those the checksum was taken of, as far as is known.
func (c checksum) fits(bytes []byte) bool {
	return c.want == "" || base64.StdEncoding.EncodeToString(c.of(bytes)) == c.want
}

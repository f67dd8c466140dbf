package plan

// RecordCost is what a sample of that size takes in a log, in the record and in the footer: below
// 64 KiB a header of 32 bytes and the bytes up to the next 16, from there on whole blocks.
func RecordCost(size uint32) int64 {
	const header, entry, block, direct = 32, 16, 4096, 64 << 10
	n := int64(size)
	if n < direct {
		return header + (n+15)&^15 + entry
	}
	return (n+header+block-1)&^(block-1) + entry
}

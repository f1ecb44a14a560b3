package main

import (
	"errors"
	"io"
	"os"

	"github.com/ava-labs/libevm/core/types"
	"github.com/ava-labs/libevm/rlp"
)

// readBlocks reads a file of blocks one after the other, as `geth import` does, and prints a line for each.
func readBlocks(path string) {
	file, err := os.Open(path)
	must(err)
	defer file.Close()
	stream := rlp.NewStream(file, 0)
	for {
		var block types.Block
		err := stream.Decode(&block)
		if errors.Is(err, io.EOF) {
			return
		}
		must(err)
		write(map[string]any{
			"number":       block.NumberU64(),
			"hash":         block.Hash(),
			"transactions": len(block.Transactions()),
			"size":         block.Size(),
		})
	}
}

// The script of ../README.md with coreth's ethclient.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/big"
	"os"
	"time"

	"github.com/ava-labs/avalanchego/graft/coreth/ethclient"
	"github.com/ava-labs/avalanchego/graft/coreth/plugin/evm/customtypes"
	"github.com/ava-labs/avalanchego/graft/evm/rpc"
	"github.com/ava-labs/libevm/common"
	"github.com/ava-labs/libevm/core/types"
)

var (
	wantLogs      = flag.Bool("logs", false, "read logs, too")
	wantRaw       = flag.Bool("raw", false, "read raw transactions, too")
	wantReconnect = flag.Bool("reconnect", false, "expect the connection to be cut")
	wantBlocks    = flag.String("blocks", "", "read this file of blocks in RLP, and nothing else")

	ctx   = context.Background()
	stdin = bufio.NewScanner(os.Stdin)
)

func main() {
	flag.Parse()
	if *wantBlocks != "" {
		customtypes.Register()
		readBlocks(*wantBlocks)
		return
	}
	if flag.NArg() < 1 {
		fmt.Fprintln(os.Stderr, "usage: session [--logs] [--raw] [--reconnect] HTTP_URL [WS_URL]")
		os.Exit(2)
	}
	// As the ethclient's users do: without it the C-chain's own header fields are lost.
	customtypes.Register()
	client, err := ethclient.Dial(flag.Arg(0))
	must(err)
	newReads(client).run()
	client.Close()
	if flag.NArg() > 1 {
		follow(flag.Arg(1))
	}
}

// must ends the session: what failed is its own affair and not an answer.
func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// write prints one line; encoding/json sorts the keys of maps.
func write(line map[string]any) {
	text, err := json.Marshal(line)
	must(err)
	fmt.Println(string(text))
}

// step does one step and prints what came of it.
func step[T any](name string, ask func() (T, error)) T {
	value, err := ask()
	if err != nil {
		write(map[string]any{"step": name, "error": explain(err)})
	} else {
		write(map[string]any{"step": name, "value": value})
	}
	return value
}

// explain says what an error says, without the server's address.
func explain(err error) map[string]any {
	shown := map[string]any{"message": err.Error()}
	var coded rpc.Error
	if errors.As(err, &coded) {
		shown["code"] = coded.ErrorCode()
	}
	var data rpc.DataError
	if errors.As(err, &data) {
		shown["data"] = data.ErrorData()
	}
	var http rpc.HTTPError
	if errors.As(err, &http) {
		shown = map[string]any{"status": http.StatusCode}
	}
	return shown
}

// showBlock is all that the ethclient knows of a block. Neither its header nor its transactions
// are asked of the server here: hashes are computed from what was read.
func showBlock(block *types.Block, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"header":       block.Header(),
		"hash":         block.Hash(),
		"transactions": block.Transactions(),
		"extData":      common.Bytes2Hex(customtypes.BlockExtData(block)),
		"version":      customtypes.BlockVersion(block),
		"size":         block.Size(),
	}, nil
}

func number(of uint64) *big.Int { return new(big.Int).SetUint64(of) }

func text(of uint64) string { return fmt.Sprintf("%#x", of) }

// announced reads the harness's next `until HEIGHT LOGS`; `cut` is for libraries that hide a cut.
func announced() (height uint64, logs int) {
	for stdin.Scan() && stdin.Text() == "cut" {
	}
	_, err := fmt.Sscanf(stdin.Text(), "until %d %d", &height, &logs)
	must(err)
	return height, logs
}

// followLimit is how long heads and logs that the harness announced may take to come.
const followLimit = time.Minute

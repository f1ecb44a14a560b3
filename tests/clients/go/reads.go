package main

import (
	"encoding/json"
	"fmt"

	"github.com/ava-labs/avalanchego/graft/coreth/ethclient"
	"github.com/ava-labs/avalanchego/graft/evm/rpc"
	ethereum "github.com/ava-labs/libevm"
	"github.com/ava-labs/libevm/common"
	"github.com/ava-labs/libevm/core/types"
)

var (
	unknown = common.HexToHash("0x7e7e7e7e7e7e7e7e7e7e7e7e7e7e7e7e7e7e7e7e7e7e7e7e7e7e7e7e7e7e7e7e")
	funded  = common.HexToAddress("0x8db97C7cEcE249c2b98bDC0226Cc4C2A57BF52FC")
	nobody  = common.HexToAddress("0x0101010101010101010101010101010101010101")
	tags    = map[string]rpc.BlockNumber{
		"latest": rpc.LatestBlockNumber, "safe": rpc.SafeBlockNumber, "pending": rpc.PendingBlockNumber,
		"finalized": rpc.FinalizedBlockNumber, "earliest": rpc.EarliestBlockNumber,
	}
)

// reads is the script over HTTP.
type reads struct {
	client *ethclient.Client
	logs   []*types.Log
}

func newReads(client *ethclient.Client) *reads { return &reads{client: client} }

func (r *reads) run() {
	step("chain id", func() (any, error) { return r.client.ChainID(ctx) })
	step("network id", func() (any, error) { return r.client.NetworkID(ctx) })
	head := step("head", func() (uint64, error) { return r.client.BlockNumber(ctx) })
	for height := uint64(0); height <= head; height++ {
		r.block(height)
	}
	r.tags()
	r.batch(head)
	r.errors()
	if *wantLogs {
		r.readLogs(head)
	}
	r.misses(head)
}

// raw is a method that the ethclient has no function for.
func (r *reads) raw(name, method string, params ...any) {
	step(name, func() (answer json.RawMessage, err error) {
		err = r.client.Client().CallContext(ctx, &answer, method, params...)
		return answer, err
	})
}

func (r *reads) block(height uint64) {
	name := fmt.Sprintf("%d", height)
	header := step("header "+name, func() (*types.Header, error) { return r.client.HeaderByNumber(ctx, number(height)) })
	if header == nil {
		return
	}
	hash := header.Hash()
	step("block "+name+" full", func() (any, error) { return showBlock(r.client.BlockByNumber(ctx, number(height))) })
	step("block "+name+" by hash full", func() (any, error) { return showBlock(r.client.BlockByHash(ctx, hash)) })
	step("header "+name+" by hash", func() (any, error) { return r.client.HeaderByHash(ctx, hash) })
	r.raw("header "+name+" alone", "eth_getHeaderByNumber", text(height))
	count := step("count "+name, func() (uint, error) { return r.client.TransactionCount(ctx, hash) })
	step("receipts "+name, func() (any, error) {
		return r.client.BlockReceipts(ctx, rpc.BlockNumberOrHashWithNumber(rpc.BlockNumber(height)))
	})
	step("receipts "+name+" by hash", func() (any, error) {
		return r.client.BlockReceipts(ctx, rpc.BlockNumberOrHashWithHash(hash, false))
	})
	for index := range count {
		r.transaction(fmt.Sprintf("%d/%d", height, index), hash, index)
	}
	step("transaction "+name+" beyond", func() (any, error) { return r.client.TransactionInBlock(ctx, hash, count) })
}

func (r *reads) transaction(name string, block common.Hash, index uint) {
	found := step("transaction "+name+" by hash and index", func() (*types.Transaction, error) {
		return r.client.TransactionInBlock(ctx, block, index)
	})
	if found == nil {
		return
	}
	hash := found.Hash()
	step("transaction "+name, func() (any, error) {
		transaction, pending, err := r.client.TransactionByHash(ctx, hash)
		return map[string]any{"transaction": transaction, "pending": pending}, err
	})
	step("sender "+name, func() (any, error) { return r.client.TransactionSender(ctx, found, block, index) })
	receipt := step("receipt "+name, func() (*types.Receipt, error) { return r.client.TransactionReceipt(ctx, hash) })
	if receipt != nil {
		r.logs = append(r.logs, receipt.Logs...)
	}
	if *wantRaw {
		r.raw("raw transaction "+name, "eth_getRawTransactionByHash", hash)
	}
}

func (r *reads) tags() {
	for _, tag := range []string{"latest", "safe", "finalized", "pending", "earliest"} {
		at := tags[tag]
		r.raw("block "+tag, "eth_getBlockByNumber", tag, false)
		step("receipts "+tag, func() (any, error) {
			return r.client.BlockReceipts(ctx, rpc.BlockNumberOrHashWithNumber(at))
		})
	}
	step("newest block", func() (any, error) { return showBlock(r.client.BlockByNumber(ctx, nil)) })
	step("newest header", func() (any, error) { return r.client.HeaderByNumber(ctx, nil) })
}

// asked is one call of a batch.
type asked struct {
	method string
	params []any
}

func (r *reads) manyAtOnce(name string, calls ...asked) {
	step(name, func() (any, error) {
		batch := make([]rpc.BatchElem, len(calls))
		answers := make([]json.RawMessage, len(calls))
		for i, call := range calls {
			batch[i] = rpc.BatchElem{Method: call.method, Args: call.params, Result: &answers[i]}
		}
		err := r.client.Client().BatchCallContext(ctx, batch)
		shown := make([]any, len(calls))
		for i := range batch {
			shown[i] = answers[i]
			if batch[i].Error != nil {
				shown[i] = explain(batch[i].Error)
			}
		}
		return shown, err
	})
}

func (r *reads) batch(head uint64) {
	r.manyAtOnce("batch",
		asked{"eth_chainId", nil},
		asked{"eth_getBlockByNumber", []any{text(head), true}},
		asked{"eth_getBlockReceipts", []any{text(head)}},
		asked{"eth_getBlockByNumber", []any{"nonsense", true}},
		asked{"eth_blockNumber", nil})
}

func (r *reads) errors() {
	r.raw("error: nonsense number", "eth_getBlockByNumber", "nonsense", false)
	r.raw("error: missing argument", "eth_getBlockByNumber", "0x0")
	r.raw("error: short hash", "eth_getTransactionByHash", "0x12")
}

func (r *reads) readLogs(head uint64) {
	var log *types.Log
	addresses := make([]common.Address, len(r.logs))
	for i, one := range r.logs {
		addresses[i] = one.Address
		if log == nil && len(one.Topics) > 1 {
			log = one
		}
	}
	filter := func(name string, addresses []common.Address, topics ...[]common.Hash) {
		query := ethereum.FilterQuery{FromBlock: number(0), ToBlock: number(head), Addresses: addresses, Topics: topics}
		step(name, func() (any, error) { return r.client.FilterLogs(ctx, query) })
	}
	step("logs of a block", func() (any, error) {
		return r.client.FilterLogs(ctx, ethereum.FilterQuery{BlockHash: &log.BlockHash})
	})
	filter("logs of the chain", nil)
	filter("logs by address", []common.Address{log.Address})
	filter("logs by addresses", addresses)
	filter("logs by topic", nil, log.Topics[:1])
	filter("logs by topics", nil, nil, []common.Hash{log.Topics[1], unknown})
	filter("logs of nobody", []common.Address{nobody})
}

// misses asks what a cache does not have and a node behind it does.
func (r *reads) misses(head uint64) {
	step("miss: future block", func() (any, error) { return showBlock(r.client.BlockByNumber(ctx, number(head+1000))) })
	step("miss: unknown block", func() (any, error) { return showBlock(r.client.BlockByHash(ctx, unknown)) })
	step("miss: unknown transaction", func() (any, error) {
		transaction, _, err := r.client.TransactionByHash(ctx, unknown)
		return transaction, err
	})
	step("miss: unknown receipt", func() (any, error) { return r.client.TransactionReceipt(ctx, unknown) })
	step("miss: balance", func() (any, error) { return r.client.BalanceAt(ctx, funded, number(head)) })
	r.manyAtOnce("miss: batch",
		asked{"eth_getBlockByNumber", []any{text(head), false}},
		asked{"eth_getCode", []any{nobody, text(head)}})
}

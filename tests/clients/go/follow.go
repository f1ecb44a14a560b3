package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/ava-labs/avalanchego/graft/coreth/ethclient"
	ethereum "github.com/ava-labs/libevm"
	"github.com/ava-labs/libevm/core/types"
)

// following is a connection with both subscriptions.
type following struct {
	client            *ethclient.Client
	heads             chan *types.Header
	logs              chan types.Log
	headsSub, logsSub ethereum.Subscription
	seenHeads         []*types.Header
	seenLogs          []types.Log
}

func connect(url string) (*following, error) {
	client, err := ethclient.Dial(url)
	if err != nil {
		return nil, err
	}
	return &following{client: client, heads: make(chan *types.Header), logs: make(chan types.Log)}, nil
}

func (f *following) subscribe() (err error) {
	if f.headsSub, err = f.client.SubscribeNewHead(ctx, f.heads); err != nil {
		return err
	}
	f.logsSub, err = f.client.SubscribeFilterLogs(ctx, ethereum.FilterQuery{}, f.logs)
	return err
}

// report waits until all that the harness announces is here, and prints it.
func (f *following) report() {
	height, logs := announced()
	done := func() bool {
		count := len(f.seenHeads)
		return len(f.seenLogs) >= logs && count > 0 && f.seenHeads[count-1].Number.Uint64() >= height
	}
	limit := time.After(followLimit)
	for !done() {
		select {
		case head := <-f.heads:
			f.seenHeads = append(f.seenHeads, head)
		case log := <-f.logs:
			f.seenLogs = append(f.seenLogs, log)
		case err := <-f.headsSub.Err():
			must(fmt.Errorf("heads ended: %v", err))
		case <-limit:
			must(fmt.Errorf("until %d %d: not in time; seen: %d heads, %d logs", height, logs, len(f.seenHeads), len(f.seenLogs)))
		}
	}
	for _, head := range f.seenHeads {
		write(map[string]any{"step": fmt.Sprintf("head %d", head.Number), "value": map[string]any{"header": head, "hash": head.Hash()}})
	}
	for _, log := range f.seenLogs {
		write(map[string]any{"step": fmt.Sprintf("log of %d", log.BlockNumber), "value": log})
	}
}

// awaitLoss waits until the connection is gone, as an ethclient's users see it.
func (f *following) awaitLoss() {
	select {
	case <-f.headsSub.Err():
		f.client.Close()
	case <-time.After(followLimit):
		must(fmt.Errorf("the connection was not cut"))
	}
}

// again connects and subscribes until it works: the ethclient leaves that to its users.
func again(url string) *following {
	for start := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		f, err := connect(url)
		if err == nil {
			err = f.subscribe()
		}
		if err == nil {
			return f
		}
		if time.Since(start) > followLimit {
			must(err)
		}
	}
}

// follow is the script over WebSocket.
func follow(url string) {
	f, err := connect(url)
	must(err)
	step("socket: chain id", func() (any, error) { return f.client.ChainID(ctx) })
	step("socket: block", func() (any, error) { return showBlock(f.client.BlockByNumber(ctx, nil)) })
	step("socket: error", func() (any, error) {
		var answer json.RawMessage
		return answer, f.client.Client().CallContext(ctx, &answer, "eth_getBlockByNumber", "nonsense", false)
	})
	must(f.subscribe())
	write(map[string]any{"step": "subscribed"})
	f.report()
	if *wantReconnect {
		write(map[string]any{"step": "waiting for the cut"})
		f.awaitLoss()
		f = again(url)
		write(map[string]any{"step": "reconnected"})
		f.report()
	}
	f.headsSub.Unsubscribe()
	f.logsSub.Unsubscribe()
	// A call after it: the connection has outlived both subscriptions.
	step("unsubscribed", func() (any, error) { return f.client.ChainID(ctx) })
	f.client.Close()
	os.Exit(0)
}

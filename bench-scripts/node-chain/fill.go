package main

import (
	"bytes"
	"context"
	"fmt"
	"math/big"
	"time"

	"github.com/ava-labs/avalanchego/graft/coreth/consensus/dummy"
	"github.com/ava-labs/avalanchego/graft/coreth/core"
	"github.com/ava-labs/avalanchego/graft/coreth/params"
	"github.com/ava-labs/avalanchego/graft/coreth/plugin/evm/customheader"
	"github.com/ava-labs/avalanchego/graft/coreth/plugin/evm/customtypes"
	"github.com/ava-labs/avalanchego/graft/evm/constants"
	"github.com/ava-labs/libevm/core/types"
	"github.com/ava-labs/libevm/rlp"
)

const (
	// When the first block was made: 2025-11-20, so that its time is past on every machine.
	firstTime = 1_763_596_800
	// The least that Granite allows.
	blockSeconds = 2
	// As long as the gas of a whole block takes to be refilled: contracts need it.
	setupSeconds = 5
	// Blocks that are kept in memory at a time.
	batch = 200
)

// Counts of what was made.
type made struct {
	blocks, transactions, logs, bytes int
}

func (m made) String() string {
	each := func(n int) float64 { return float64(n) / float64(max(1, m.blocks)) }
	return fmt.Sprintf("%d blocks; a block: %.1f transactions, %.1f logs, %.0f bytes of RLP",
		m.blocks, each(m.transactions), each(m.logs), each(m.bytes))
}

// Appends blocks up to the height that is wanted.
func fill(c *chain, o options) (made, error) {
	var all made
	head := c.blocks.LastAcceptedBlock()
	if head.NumberU64() > 0 {
		return all, fmt.Errorf("the chain has %d blocks already; only an empty one can be filled", head.NumberU64())
	}
	source, err := newSource(profiles[o.profile], o.seed, c.blocks.Config().ChainID)
	if err != nil {
		return all, err
	}
	for begun := time.Now(); all.blocks < o.blocks; {
		count, gap := min(batch, o.blocks-all.blocks), uint64(blockSeconds)
		if len(source.setup) > 0 {
			count, gap = 1, setupSeconds
		}
		if all.blocks == 0 {
			gap = firstTime - head.Time()
		}
		if err := c.append(count, gap, source, &all); err != nil {
			return all, err
		}
		if seconds := time.Since(begun).Seconds(); all.blocks%2_000 < count {
			fmt.Printf("%d blocks, %.0f a second\n", all.blocks, float64(all.blocks)/seconds)
		}
	}
	return all, nil
}

// Makes blocks on the head, and has the VM verify and accept each as if a peer had sent it.
func (c *chain) append(count int, gap uint64, source *source, all *made) (err error) {
	// The generator calls back without a way to give an error.
	defer func() {
		if failed := recover(); failed != nil {
			err = fmt.Errorf("block %d: %v", all.blocks+1, failed)
		}
	}()
	config := c.blocks.Config()
	fillBlock := func(at int, block *core.BlockGen) {
		block.SetCoinbase(constants.BlackholeAddr)
		block.SetOnBlockGenerated(func(block *types.Block) { c.accept(block, all) })
		parent := block.PrevBlock(at - 1).Header()
		time := customtypes.HeaderTimeMilliseconds(parent) + gap*1_000
		gas, err := customheader.GasCapacity(params.GetExtra(config), parent, time)
		if err != nil {
			panic(err)
		}
		all.logs += source.into(block, gas)
	}
	_, _, err = core.GenerateChainFromStateCache(config, c.blocks.LastAcceptedBlock(),
		dummy.NewFakerWithCallbacks(dummy.ConsensusCallbacks{}), c.blocks.StateCache(),
		count, gap, fillBlock, core.WithoutDiskCommit())
	c.blocks.DrainAcceptorQueue()
	return err
}

func (c *chain) accept(block *types.Block, all *made) {
	var text bytes.Buffer
	if err := rlp.Encode(&text, block); err != nil {
		panic(err)
	}
	ctx := context.Background()
	parsed, err := c.vm.ParseBlock(ctx, text.Bytes())
	if err != nil {
		panic(err)
	}
	if err := parsed.Verify(ctx); err != nil {
		panic(err)
	}
	if err := parsed.Accept(ctx); err != nil {
		panic(err)
	}
	all.blocks++
	all.transactions += len(block.Transactions())
	all.bytes += text.Len()
}

func wei(gwei int64) *big.Int { return new(big.Int).Mul(big.NewInt(gwei), big.NewInt(params.GWei)) }

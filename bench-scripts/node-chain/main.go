// Fills the data directory of an avalanchego node with a C-chain of many blocks.
//
// A live node makes a block a second at best; here each block goes through the node's own VM as
// fast as it takes them: made, verified and accepted, into the database that the node will open.
// The same flags make the same blocks, to the byte.
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/ava-labs/avalanchego/graft/coreth/plugin/evm"
	"github.com/ava-labs/avalanchego/utils/constants"
)

type options struct {
	dataDir     string
	chainConfig string
	networkID   uint
	blocks      int
	profile     string
	seed        uint64
	feed        string
}

func parse() (options, error) {
	var o options
	flag.StringVar(&o.dataDir, "data-dir", "", "the node's --data-dir; made if it is not there")
	flag.StringVar(&o.chainConfig, "chain-config", "", "the C-chain's config.json that the node will have")
	flag.UintVar(&o.networkID, "network-id", uint(constants.LocalID), "the node's --network-id, as a number")
	flag.IntVar(&o.blocks, "blocks", 20_000, "height to fill up to, or blocks to feed")
	flag.StringVar(&o.profile, "profile", "mainnet", "what blocks hold: mainnet, transfers")
	flag.Uint64Var(&o.seed, "seed", 1, "where random choices begin")
	flag.StringVar(&o.feed, "feed", "", "send transactions to the running node at this URL instead, for so many blocks more")
	flag.Parse()
	if o.feed == "" && (o.dataDir == "" || o.chainConfig == "") {
		return o, fmt.Errorf("--data-dir and --chain-config are needed, or --feed")
	}
	if o.networkID == uint(constants.MainnetID) || o.networkID == uint(constants.FujiID) || o.networkID > math.MaxUint32 {
		return o, fmt.Errorf("--network-id %d: allowed are networks of one's own, up to %d", o.networkID, uint32(math.MaxUint32))
	}
	if o.blocks < 1 {
		return o, fmt.Errorf("--blocks %d: allowed is 1 or more", o.blocks)
	}
	if _, known := profiles[o.profile]; !known {
		return o, fmt.Errorf("--profile %s: allowed are mainnet and transfers", o.profile)
	}
	return o, nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "node-chain:", err)
		os.Exit(1)
	}
}

func run() error {
	o, err := parse()
	if err != nil {
		return err
	}
	if o.feed != "" {
		return feed(o.feed, o.blocks, o.profile, o.seed)
	}
	config, err := os.ReadFile(o.chainConfig)
	if err != nil {
		return err
	}
	evm.RegisterAllLibEVMExtras()
	chain, err := open(o.dataDir, uint32(o.networkID), config)
	if err != nil {
		return err
	}
	start := time.Now()
	made, err := fill(chain, o)
	if err != nil {
		_ = chain.close()
		return err
	}
	fmt.Printf("filling took %.0f s\n%s\n", time.Since(start).Seconds(), made)
	return chain.close()
}

// Closing writes what is still in memory: without it the node would find an older head.
func (c *chain) close() error {
	if err := c.vm.Shutdown(context.Background()); err != nil {
		return err
	}
	return c.db.Close()
}

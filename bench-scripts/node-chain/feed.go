package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ava-labs/libevm/core/types"
	"github.com/ava-labs/libevm/ethclient"
)

const (
	lookEvery = 50 * time.Millisecond
	// A node makes a block some seconds after it gets transactions.
	blockWithin = time.Minute
	// What a block has comes over so long, not all when the last block was accepted, and what is
	// asked here before it comes so long after: a node that is busy with that has less time for
	// whoever asks about the block.
	sendOver  = time.Second
	afterHead = 200 * time.Millisecond
)

// Sends transactions to a running node whose chain was filled with the same profile and seed, as many
// at a time as blocks have, until it has made `blocks` more.
func feed(url string, blocks int, profile string, seed uint64) error {
	ctx := context.Background()
	client, err := ethclient.DialContext(ctx, url)
	if err != nil {
		return err
	}
	defer client.Close()
	chainID, err := client.ChainID(ctx)
	if err != nil {
		return err
	}
	source, err := newSource(profiles[profile], seed, chainID)
	if err != nil {
		return err
	}
	head, err := client.BlockNumber(ctx)
	if err != nil {
		return err
	}
	for last := head + uint64(blocks); head < last; {
		if err := source.renew(ctx, client); err != nil {
			return err
		}
		if err := source.send(ctx, client); err != nil {
			return err
		}
		if head, err = above(ctx, client, head); err != nil {
			return err
		}
		time.Sleep(afterHead)
	}
	return nil
}

// Continues where the chain is: whatever is sent by whom has the sender's next nonce.
func (s *source) renew(ctx context.Context, client *ethclient.Client) error {
	s.setup = nil
	for at := range s.senders {
		nonce, err := client.PendingNonceAt(ctx, s.senders[at].address)
		if err != nil {
			return err
		}
		s.senders[at].nonce = nonce
	}
	return nil
}

// Sends what one block has, a pause before each.
func (s *source) send(ctx context.Context, client *ethclient.Client) error {
	count := max(1, s.draws.quantile(s.draws.transactions))
	for range count {
		time.Sleep(sendOver / time.Duration(count))
		next := s.ordinary()
		signed, err := types.SignNewTx(next.sender.key, s.signer, next.tx)
		if err != nil {
			return err
		}
		if err := client.SendTransaction(ctx, signed); err != nil {
			return err
		}
	}
	return nil
}

// Waits for a block above this height.
func above(ctx context.Context, client *ethclient.Client, height uint64) (uint64, error) {
	for end := time.Now().Add(blockWithin); time.Now().Before(end); time.Sleep(lookEvery) {
		head, err := client.BlockNumber(ctx)
		if err != nil || head > height {
			return head, err
		}
	}
	return 0, fmt.Errorf("no block above %d within %s", height, blockWithin)
}

// Everyday steps of ../../everyday with coreth's ethclient.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"time"

	"github.com/ava-labs/avalanchego/graft/coreth/ethclient"
	"github.com/ava-labs/avalanchego/graft/coreth/plugin/evm/customtypes"
	ethereum "github.com/ava-labs/libevm"
	"github.com/ava-labs/libevm/common"
	"github.com/ava-labs/libevm/core/types"
	"github.com/ava-labs/libevm/crypto"
)

type facts struct {
	Chain, Height                       int64
	Contract, Transaction, Address, Key string
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// step does one step and prints what came of it.
func step(name string, ask func() (any, error)) {
	line := map[string]any{"step": name}
	if value, err := ask(); err != nil {
		line["error"] = err.Error()
	} else {
		line["value"] = fmt.Sprint(value)
	}
	text, err := json.Marshal(line)
	must(err)
	fmt.Println(string(text))
}

// send sends a transfer and waits until it is in a block.
func send(ctx context.Context, client *ethclient.Client, known facts, to common.Address) (any, error) {
	key, err := crypto.HexToECDSA(known.Key[2:])
	must(err)
	nonce, err := client.NonceAt(ctx, crypto.PubkeyToAddress(key.PublicKey), nil)
	if err != nil {
		return nil, err
	}
	price, err := client.SuggestGasPrice(ctx)
	if err != nil {
		return nil, err
	}
	draft := &types.LegacyTx{Nonce: nonce, GasPrice: price.Mul(price, big.NewInt(2)), Gas: 21000, To: &to, Value: big.NewInt(1)}
	signed, err := types.SignNewTx(key, types.NewEIP155Signer(big.NewInt(known.Chain)), draft)
	must(err)
	if err := client.SendTransaction(ctx, signed); err != nil {
		return nil, err
	}
	for {
		receipt, err := client.TransactionReceipt(ctx, signed.Hash())
		if err == nil {
			return receipt.Status, nil
		}
		if !errors.Is(err, ethereum.NotFound) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func main() {
	content, err := os.ReadFile(os.Args[2])
	must(err)
	var known facts
	must(json.Unmarshal(content, &known))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	customtypes.Register()
	client, err := ethclient.Dial(os.Args[1])
	must(err)
	at, address, contract := big.NewInt(known.Height), common.HexToAddress(known.Address), common.HexToAddress(known.Contract)
	hash := common.HexToHash(known.Transaction)
	step("chain id", func() (any, error) { return client.ChainID(ctx) })
	step("head", func() (any, error) {
		head, err := client.BlockNumber(ctx)
		return head >= uint64(known.Height), err
	})
	step("block", func() (any, error) {
		block, err := client.BlockByNumber(ctx, at)
		if err != nil {
			return nil, err
		}
		return block.Hash(), nil
	})
	step("transaction", func() (any, error) {
		found, pending, err := client.TransactionByHash(ctx, hash)
		if err != nil {
			return nil, err
		}
		return fmt.Sprint(found.Nonce(), pending), nil
	})
	step("receipt", func() (any, error) {
		receipt, err := client.TransactionReceipt(ctx, hash)
		if err != nil {
			return nil, err
		}
		return receipt.GasUsed, nil
	})
	step("logs", func() (any, error) {
		logs, err := client.FilterLogs(ctx, ethereum.FilterQuery{FromBlock: new(big.Int), ToBlock: at, Addresses: []common.Address{contract}})
		return len(logs), err
	})
	step("balance", func() (any, error) { return client.BalanceAt(ctx, address, at) })
	step("nonce", func() (any, error) { return client.NonceAt(ctx, address, at) })
	step("code", func() (any, error) { return client.CodeAt(ctx, contract, at) })
	step("storage", func() (any, error) { return client.StorageAt(ctx, contract, common.Hash{}, at) })
	step("call", func() (any, error) { return client.CallContract(ctx, ethereum.CallMsg{To: &contract}, at) })
	step("estimate", func() (any, error) { return client.EstimateGas(ctx, ethereum.CallMsg{From: address, To: &contract}) })
	step("prices", func() (any, error) {
		price, err := client.SuggestGasPrice(ctx)
		if err != nil {
			return nil, err
		}
		return price.Sign(), nil
	})
	step("send and wait", func() (any, error) { return send(ctx, client, known, address) })
}

package main

import (
	"context"
	"path/filepath"

	"github.com/ava-labs/avalanchego/api/metrics"
	"github.com/ava-labs/avalanchego/chains"
	"github.com/ava-labs/avalanchego/chains/atomic"
	"github.com/ava-labs/avalanchego/database"
	"github.com/ava-labs/avalanchego/database/factory"
	"github.com/ava-labs/avalanchego/database/leveldb"
	"github.com/ava-labs/avalanchego/database/prefixdb"
	"github.com/ava-labs/avalanchego/genesis"
	"github.com/ava-labs/avalanchego/graft/coreth/core"
	"github.com/ava-labs/avalanchego/graft/coreth/plugin/evm"
	atomicvm "github.com/ava-labs/avalanchego/graft/coreth/plugin/evm/atomic/vm"
	"github.com/ava-labs/avalanchego/ids"
	"github.com/ava-labs/avalanchego/snow"
	"github.com/ava-labs/avalanchego/snow/engine/enginetest"
	"github.com/ava-labs/avalanchego/snow/validators/validatorstest"
	"github.com/ava-labs/avalanchego/upgrade"
	"github.com/ava-labs/avalanchego/utils/constants"
	"github.com/ava-labs/avalanchego/utils/crypto/bls/signer/localsigner"
	"github.com/ava-labs/avalanchego/utils/logging"
	"github.com/ava-labs/avalanchego/version"
	"github.com/ava-labs/avalanchego/vms/platformvm/txs"
	"github.com/ava-labs/avalanchego/vms/platformvm/warp"
	"github.com/prometheus/client_golang/prometheus"
)

// The C-chain's VM on the database of a node that is not running.
type chain struct {
	db     database.Database
	vm     *atomicvm.VM
	blocks *core.BlockChain
}

// Opens the database where a node of this network has it (avalanchego, node/node.go,
// initDatabase), and in it the C-chain's VM under the prefixes of chains/manager.go.
func open(dataDir string, networkID uint32, config []byte) (*chain, error) {
	path := filepath.Join(dataDir, "db", constants.NetworkName(networkID), version.CurrentDatabase)
	db, err := factory.New(leveldb.Name, path, false, nil, prometheus.NewRegistry(), logging.NoLog{})
	if err != nil {
		return nil, err
	}
	snowContext, genesisData, err := contextOf(db, dataDir, networkID)
	if err != nil {
		return nil, err
	}
	vmDB := prefixdb.New(chains.VMDBPrefix, prefixdb.New(snowContext.ChainID[:], db))
	vm := atomicvm.WrapVM(&evm.VM{})
	background := context.Background()
	err = vm.Initialize(background, snowContext, vmDB, genesisData, nil, config, nil, &enginetest.Sender{})
	if err != nil {
		return nil, err
	}
	// A node that catches up verifies blocks in this state, without asking for predicates.
	if err := vm.SetState(background, snow.Bootstrapping); err != nil {
		return nil, err
	}
	return &chain{db: db, vm: vm, blocks: vm.Ethereum().BlockChain()}, nil
}

// What the node tells its C-chain about the network and itself.
func contextOf(db database.Database, dataDir string, networkID uint32) (*snow.Context, []byte, error) {
	networkGenesis, asset, err := genesis.FromConfig(genesis.GetConfig(networkID))
	if err != nil {
		return nil, nil, err
	}
	cChain, err := genesis.VMGenesis(networkGenesis, constants.EVMID)
	if err != nil {
		return nil, nil, err
	}
	xChain, err := genesis.VMGenesis(networkGenesis, constants.AVMID)
	if err != nil {
		return nil, nil, err
	}
	key, err := localsigner.New()
	if err != nil {
		return nil, nil, err
	}
	aliases := ids.NewAliaser()
	if err := aliases.Alias(cChain.ID(), "C"); err != nil {
		return nil, nil, err
	}
	sharedMemory := atomic.NewMemory(prefixdb.New([]byte("shared memory"), db))
	return &snow.Context{
		NetworkID:       networkID,
		SubnetID:        constants.PrimaryNetworkID,
		ChainID:         cChain.ID(),
		NodeID:          ids.GenerateTestNodeID(),
		PublicKey:       key.PublicKey(),
		NetworkUpgrades: upgrade.GetConfig(networkID),
		XChainID:        xChain.ID(),
		CChainID:        cChain.ID(),
		AVAXAssetID:     asset,
		Log:             logging.NoLog{},
		SharedMemory:    sharedMemory.NewSharedMemory(cChain.ID()),
		BCLookup:        aliases,
		Metrics:         metrics.NewPrefixGatherer(),
		WarpSigner:      warp.NewSigner(key, networkID, cChain.ID()),
		ValidatorState:  &validatorstest.State{},
		ChainDataDir:    filepath.Join(dataDir, "chainData", cChain.ID().String()),
	}, cChain.Unsigned.(*txs.CreateChainTx).GenesisData, nil
}

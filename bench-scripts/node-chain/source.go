package main

import (
	"crypto/ecdsa"
	"math/big"

	"github.com/ava-labs/avalanchego/genesis"
	"github.com/ava-labs/avalanchego/graft/coreth/core"
	"github.com/ava-labs/libevm/common"
	"github.com/ava-labs/libevm/core/types"
	"github.com/ava-labs/libevm/crypto"
)

const (
	senderCount = 64
	// More than a call of a hundred logs takes.
	callGas = 1_500_000
	// What a dispatcher takes to deploy, and more.
	deployGas = 4_600_000
)

// Transactions, in the order in which blocks take them: money for the senders, the contracts, and
// then calls and transfers for ever.
type source struct {
	draws       *draws
	signer      types.Signer
	chainID     *big.Int
	senders     []account
	users       []common.Address
	emitters    []common.Address
	dispatchers []common.Address
	setup       []pending
	waiting     *pending
}

type account struct {
	key     *ecdsa.PrivateKey
	address common.Address
	nonce   uint64
}

type pending struct {
	sender *account
	tx     types.TxData
	gas    uint64
	logs   int
}

func newSource(p profile, seed uint64, chainID *big.Int) (*source, error) {
	s := &source{draws: newDraws(p, seed), signer: types.LatestSignerForChainID(chainID), chainID: chainID}
	funded := &account{key: genesis.EWOQKey.ToECDSA(), address: genesis.EWOQKey.EthAddress()}
	for at := range senderCount {
		key, err := crypto.ToECDSA(hash("sender", at).Bytes())
		if err != nil {
			return nil, err
		}
		sender := account{key: key, address: crypto.PubkeyToAddress(key.PublicKey)}
		s.senders = append(s.senders, sender)
		s.setup = append(s.setup, s.transfer(funded, sender.address, wei(100_000_000_000)))
	}
	for at := range p.users {
		s.users = append(s.users, address("user", at))
	}
	topics := []common.Hash{crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)"))}
	for at := 1; at < p.topics; at++ {
		topics = append(topics, hash("topic", at))
	}
	for range p.emitters {
		s.emitters = append(s.emitters, s.deploy(funded, emitterCode(), 150_000))
	}
	for range p.dispatchers {
		code := dispatcherCode(s.emitters, topics)
		s.dispatchers = append(s.dispatchers, s.deploy(funded, code, deployGas))
	}
	return s, nil
}

func hash(what string, at int) common.Hash {
	return crypto.Keccak256Hash([]byte(what), big.NewInt(int64(at)).Bytes())
}

func address(what string, at int) common.Address {
	return common.BytesToAddress(hash(what, at).Bytes())
}

// Queues the creation of a contract and returns its address.
func (s *source) deploy(by *account, code []byte, gas uint64) common.Address {
	s.setup = append(s.setup, s.pending(by, nil, nil, deployment(code), gas, 0))
	return crypto.CreateAddress(by.address, by.nonce-1)
}

func (s *source) transfer(by *account, to common.Address, value *big.Int) pending {
	return s.pending(by, &to, value, nil, 21_000, 0)
}

func (s *source) pending(by *account, to *common.Address, value *big.Int, data []byte, gas uint64, logs int) pending {
	fee, extra := wei(100), wei(1+int64(len(data)%3))
	// One in 26 is of the old kind, as on mainnet.
	var tx types.TxData = &types.DynamicFeeTx{
		ChainID: s.chainID, Nonce: by.nonce, GasTipCap: extra, GasFeeCap: fee,
		Gas: gas, To: to, Value: value, Data: data,
	}
	if s.draws.random.IntN(26) == 0 {
		tx = &types.LegacyTx{Nonce: by.nonce, GasPrice: extra, Gas: gas, To: to, Value: value, Data: data}
	}
	by.nonce++
	return pending{sender: by, tx: tx, gas: gas, logs: logs}
}

// Fills a block with what comes next; returns how many logs that makes.
func (s *source) into(block *core.BlockGen, gas uint64) int {
	want, logs, limit := s.draws.quantile(s.draws.transactions), 0, block.Gas()
	for count := 0; count < want || len(s.setup) > 0; count++ {
		next := s.next()
		// What is refilled between blocks is less than the limit in their headers.
		if used := limit - block.Gas(); used+next.gas > gas {
			s.waiting = next
			break
		}
		signed := types.MustSignNewTx(next.sender.key, s.signer, next.tx)
		block.AddTx(signed)
		logs += next.logs
	}
	return logs
}

func (s *source) next() *pending {
	if s.waiting != nil {
		next := s.waiting
		s.waiting = nil
		return next
	}
	if len(s.setup) > 0 {
		next := s.setup[0]
		s.setup = s.setup[1:]
		return &next
	}
	next := s.ordinary()
	return &next
}

// A call with the logs that were drawn, or a transfer if there are none.
func (s *source) ordinary() pending {
	sender := &s.senders[s.draws.random.IntN(senderCount)]
	to := s.users[s.draws.place(s.draws.user)]
	events, length := s.draws.events(), s.draws.quantile(s.draws.input)
	if len(events) == 0 && length < recordsAt {
		return s.transfer(sender, to, wei(s.draws.random.Int64N(1_000_000)))
	}
	from := s.users[s.draws.place(s.draws.user)]
	dispatcher := s.dispatchers[s.draws.random.IntN(len(s.dispatchers))]
	data := calldata(from, to, events, length)
	return s.pending(sender, &dispatcher, nil, data, callGas, len(events))
}

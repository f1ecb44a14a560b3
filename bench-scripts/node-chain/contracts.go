package main

import (
	"encoding/binary"
	"fmt"

	"github.com/ava-labs/libevm/common"
	"github.com/ava-labs/libevm/core/vm"
)

// Where the dispatcher keeps its variables; what it sends to an emitter begins at zero.
const (
	varRecord  = 0x2000
	varPlace   = 0x2020
	varLeft    = 0x2040
	varWords   = 0x2060
	varSender  = 0x2080
	varsLength = 0xa0
	varTarget  = 0x2100
)

// What the calldata of a dispatcher has before its records, and the length of one.
const (
	recordsAt    = 69
	recordLength = 6
)

// A log that a transaction is to make.
type event struct {
	emitter, topic uint16
	topics, words  uint8
}

// Emits one log: the number of topics, four topics, then data, is what it is sent.
func emitterCode() []byte {
	a := newAssembly()
	a.push1(0xa0).op(vm.CALLDATASIZE, vm.SUB, vm.DUP1).push1(0xa0).push1(0).op(vm.CALLDATACOPY)
	for _, at := range []byte{0x80, 0x60, 0x40, 0x20} {
		a.push1(at).op(vm.CALLDATALOAD)
	}
	a.push1(0xa0).op(vm.CALLDATASIZE, vm.SUB).push1(0)
	// The five ends are three bytes each.
	a.push1(0).op(vm.CALLDATALOAD).push1(3).op(vm.MUL).ref("ends").op(vm.ADD, vm.JUMP)
	a.at("ends")
	for log := vm.LOG0; log <= vm.LOG4; log++ {
		a.op(vm.JUMPDEST, log, vm.STOP)
	}
	return a.link()
}

// Emits the logs that its calldata lists, each through an emitter of its table.
//
// Calldata: selector, sender, recipient (the indexed ones), number of records, and the records.
func dispatcherCode(emitters []common.Address, topics []common.Hash) []byte {
	a := newAssembly()
	a.push1(68).op(vm.CALLDATALOAD).push1(248).op(vm.SHR).store(varLeft)
	a.push1(recordsAt).store(varPlace)
	a.push1(4).op(vm.CALLDATALOAD).store(varSender)
	a.at("record").op(vm.JUMPDEST).load(varLeft).op(vm.ISZERO).ref("end").op(vm.JUMPI)
	a.load(varPlace).op(vm.CALLDATALOAD).store(varRecord)
	a.push1(20).field(240, 0xffff).push1(20).op(vm.MUL).ref("emitters").op(vm.ADD)
	a.push2(varTarget + 12).op(vm.CODECOPY)
	a.push1(32).field(224, 0xffff).push1(32).op(vm.MUL).ref("topics").op(vm.ADD)
	a.push1(0x20).op(vm.CODECOPY)
	a.field(216, 0xff).push1(0).op(vm.MSTORE)
	a.push1(4).op(vm.CALLDATALOAD).push1(0x40).op(vm.MSTORE)
	a.push1(36).op(vm.CALLDATALOAD).push1(0x60).op(vm.MSTORE)
	a.push1(0x60).push1(0x20).op(vm.KECCAK256).push1(0x80).op(vm.MSTORE)
	a.field(208, 0xff).store(varWords)
	a.at("word").op(vm.JUMPDEST).load(varWords).op(vm.ISZERO).ref("call").op(vm.JUMPI)
	// Amounts, as it were: ten bytes that look random.
	a.push1(varsLength).push2(varRecord).op(vm.KECCAK256).push1(176).op(vm.SHR)
	a.load(varWords).push1(32).op(vm.MUL).push1(0x80).op(vm.ADD, vm.MSTORE)
	a.push1(1).load(varWords).op(vm.SUB).store(varWords)
	a.ref("word").op(vm.JUMP)
	a.at("call").op(vm.JUMPDEST).push1(0).push1(0)
	a.field(208, 0xff).push1(32).op(vm.MUL).push1(0xa0).op(vm.ADD)
	a.push1(0).push1(0).load(varTarget).op(vm.GAS, vm.CALL, vm.POP)
	a.push1(recordLength).load(varPlace).op(vm.ADD).store(varPlace)
	a.push1(1).load(varLeft).op(vm.SUB).store(varLeft)
	a.ref("record").op(vm.JUMP)
	a.at("end").op(vm.JUMPDEST, vm.STOP)
	a.at("emitters")
	for _, address := range emitters {
		a.code = append(a.code, address[:]...)
	}
	a.at("topics")
	for _, topic := range topics {
		a.code = append(a.code, topic[:]...)
	}
	return a.link()
}

// What a transaction sends to a dispatcher, filled up with zeros to `length`.
func calldata(from, to common.Address, events []event, length int) []byte {
	data := []byte{0xa9, 0x05, 0x9c, 0xbb}
	data = append(data, common.LeftPadBytes(from[:], 32)...)
	data = append(data, common.LeftPadBytes(to[:], 32)...)
	data = append(data, byte(len(events)))
	for _, event := range events {
		data = binary.BigEndian.AppendUint16(data, event.emitter)
		data = binary.BigEndian.AppendUint16(data, event.topic)
		data = append(data, event.topics, event.words)
	}
	return append(data, make([]byte, max(0, length-len(data)))...)
}

// Init code that leaves `code` as the contract's.
func deployment(code []byte) []byte {
	a := newAssembly()
	a.push2(len(code)).op(vm.DUP1).ref("code").push1(0).op(vm.CODECOPY).push1(0).op(vm.RETURN)
	a.at("code").code = append(a.code, code...)
	return a.link()
}

// Bytecode with places that are filled in at the end.
type assembly struct {
	code   []byte
	labels map[string]int
	refs   map[int]string
}

func newAssembly() *assembly {
	return &assembly{labels: map[string]int{}, refs: map[int]string{}}
}

func (a *assembly) op(ops ...vm.OpCode) *assembly {
	for _, op := range ops {
		a.code = append(a.code, byte(op))
	}
	return a
}

func (a *assembly) push1(value byte) *assembly {
	a.code = append(a.code, byte(vm.PUSH1), value)
	return a
}

func (a *assembly) push2(value int) *assembly {
	a.code = append(a.code, byte(vm.PUSH2), byte(value>>8), byte(value))
	return a
}

func (a *assembly) load(place int) *assembly  { return a.push2(place).op(vm.MLOAD) }
func (a *assembly) store(place int) *assembly { return a.push2(place).op(vm.MSTORE) }

// A field of the record that is being done.
func (a *assembly) field(shift byte, mask int) *assembly {
	return a.load(varRecord).push1(shift).op(vm.SHR).push2(mask).op(vm.AND)
}

func (a *assembly) at(label string) *assembly {
	a.labels[label] = len(a.code)
	return a
}

func (a *assembly) ref(label string) *assembly {
	a.refs[len(a.code)+1] = label
	return a.push2(0)
}

func (a *assembly) link() []byte {
	for place, label := range a.refs {
		at, known := a.labels[label]
		if !known {
			panic(fmt.Sprintf("no label %s", label))
		}
		binary.BigEndian.PutUint16(a.code[place:], uint16(at))
	}
	return a.code
}

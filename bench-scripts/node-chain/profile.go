package main

import (
	"math/rand/v2"
	"sort"
)

// What blocks hold. The shares are those of 668 blocks of Avalanche mainnet (January 2026).
type profile struct {
	emitters, topics, dispatchers, users int
	// Transactions of a block, at the quantiles of `quantiles`.
	transactions []float64
	// Bytes of calldata, likewise.
	input []float64
	// Logs of a transaction: from how many, and the share of transactions.
	logs []share
	// Of the logs: how many topics, how many words of data.
	topicCounts, dataWords []share
	// Of the logs: those of the most frequent contracts and first topics. What is missing to one is
	// spread over the others as Zipf has it.
	emitterShares, topicShares []float64
}

type share struct {
	from, to int
	weight   float64
}

var quantiles = []float64{0, .1, .25, .5, .75, .9, .95, .99, .999, 1}

var profiles = map[string]profile{
	"mainnet": {
		emitters: 480, topics: 300, dispatchers: 12, users: 5_000,
		transactions: []float64{1, 16, 21, 27, 34, 47, 66, 128, 215, 223},
		input:        []float64{0, 0, 0, 68, 68, 196, 260, 2052, 5540, 5540},
		logs: []share{
			{0, 0, .4304}, {1, 1, .4377}, {2, 2, .0252}, {3, 3, .0189}, {4, 4, .0171}, {5, 5, .0080},
			{6, 6, .0051}, {7, 7, .0068}, {8, 8, .0074}, {9, 9, .0022}, {10, 10, .0054},
			{11, 11, .0068}, {12, 12, .0036}, {13, 13, .0058}, {14, 24, .0110}, {25, 25, .0027},
			{26, 39, .0033}, {40, 100, .0020},
		},
		topicCounts: []share{{1, 1, .0603}, {2, 2, .1661}, {3, 3, .6985}, {4, 4, .0750}},
		dataWords: []share{
			{0, 0, .0121}, {1, 1, .6566}, {2, 2, .1208}, {3, 3, .0435}, {4, 4, .0511}, {5, 5, .0522},
			{6, 6, .0266}, {7, 7, .0102}, {8, 20, .0120}, {60, 60, .0020}, {65, 65, .0036},
		},
		emitterShares: []float64{
			.2860, .1086, .0847, .0464, .0274, .0212, .0186, .0173, .0157, .0153, .0128, .0109, .0107,
			.0097, .0074, .0068, .0060, .0057, .0054, .0051,
		},
		topicShares: []float64{
			.5285, .0617, .0560, .0303, .0160, .0156, .0134, .0127, .0121, .0100, .0097, .0087, .0085,
			.0074, .0074, .0074, .0073, .0071, .0071, .0068,
		},
	},
	// Few transfers and no logs.
	"transfers": {
		emitters: 1, topics: 1, dispatchers: 1, users: 100,
		transactions:  []float64{1, 1, 1, 2, 2, 3, 4, 4, 5, 5},
		input:         []float64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		logs:          []share{{0, 0, 1}},
		topicCounts:   []share{{1, 1, 1}},
		dataWords:     []share{{0, 0, 1}},
		emitterShares: []float64{1},
		topicShares:   []float64{1},
	},
}

// Draws of a profile. The same seed draws the same.
type draws struct {
	profile
	random         *rand.Rand
	emitter, topic []float64
	user           []float64
}

func newDraws(p profile, seed uint64) *draws {
	return &draws{
		profile: p,
		random:  rand.New(rand.NewPCG(seed, 0)),
		emitter: cumulated(p.emitterShares, p.emitters),
		topic:   cumulated(p.topicShares, p.topics),
		user:    cumulated(nil, p.users),
	}
}

// Running sums of `count` shares: those given, then the rest by the inverse of their rank.
func cumulated(given []float64, count int) []float64 {
	all, rest := append([]float64(nil), given...), 1.0
	for _, share := range given {
		rest -= share
	}
	harmonic := 0.0
	for rank := 1; rank <= count-len(given); rank++ {
		harmonic += 1 / float64(rank)
	}
	for rank := 1; len(all) < count; rank++ {
		all = append(all, max(0, rest)/float64(rank)/harmonic)
	}
	for at := 1; at < len(all); at++ {
		all[at] += all[at-1]
	}
	return all
}

// One of the places of running sums.
func (d *draws) place(sums []float64) int {
	wanted := d.random.Float64() * sums[len(sums)-1]
	return min(sort.SearchFloat64s(sums, wanted), len(sums)-1)
}

// A value between the quantiles beside it.
func (d *draws) quantile(values []float64) int {
	wanted := d.random.Float64()
	above := max(1, sort.SearchFloat64s(quantiles, wanted))
	below := above - 1
	part := (wanted - quantiles[below]) / (quantiles[above] - quantiles[below])
	return int(values[below] + part*(values[above]-values[below]) + .5)
}

func (d *draws) share(shares []share) int {
	sum := 0.0
	for _, share := range shares {
		sum += share.weight
	}
	wanted := d.random.Float64() * sum
	for _, share := range shares {
		if wanted -= share.weight; wanted < 0 {
			return share.from + d.random.IntN(share.to-share.from+1)
		}
	}
	return shares[0].from
}

func (d *draws) events() []event {
	events := make([]event, d.share(d.logs))
	for at := range events {
		events[at] = event{
			emitter: uint16(d.place(d.emitter)),
			topic:   uint16(d.place(d.topic)),
			topics:  uint8(d.share(d.topicCounts)),
			words:   uint8(d.share(d.dataWords)),
		}
	}
	return events
}

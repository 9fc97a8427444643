// Maps, trees and strings of several goroutines, made and dropped so many times; one line that depends on them. Linked
// statically, with a garbage collector that must have run. Arguments: rounds, records of each goroutine.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
)

type node struct {
	left, right *node
	key         uint64
	name        string
	more        []uint64
}

func (n *node) insert(key uint64) *node {
	if n == nil {
		return &node{key: key, name: strconv.FormatUint(key, 36), more: make([]uint64, key%16)}
	}
	if key < n.key {
		n.left = n.left.insert(key)
	} else if key > n.key {
		n.right = n.right.insert(key)
	}
	return n
}

func (n *node) digest(h uint64) uint64 {
	if n == nil {
		return h
	}
	h = n.left.digest(h)
	for _, c := range []byte(n.name) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	for _, m := range n.more {
		h = (h ^ m) * 1099511628211
	}
	return n.right.digest(h ^ uint64(len(n.more)))
}

func work(g uint64, rounds, records int) uint64 {
	x, h := g+1, uint64(14695981039346656037)
	byName := map[string]*node{}
	for r := 0; r < rounds; r++ {
		var tree *node
		for i := 0; i < records; i++ {
			x = x*6364136223846793005 + 1442695040888963407
			tree = tree.insert(x >> 33)
		}
		h = tree.digest(h)
		byName[strconv.Itoa(r%5)] = tree
		h = byName[strconv.Itoa(int(x>>40)%len(byName))].digest(h)
		if g == 0 {
			// How often it collects by itself depends on how much of a processor its collector gets.
			runtime.GC()
		}
	}
	return h
}

func main() {
	rounds, _ := strconv.Atoi(os.Args[1])
	records, _ := strconv.Atoi(os.Args[2])
	digests := make([]uint64, 3)
	var wait sync.WaitGroup
	for g := range digests {
		wait.Add(1)
		go func(g int) {
			defer wait.Done()
			digests[g] = work(uint64(g), rounds, records)
		}(g)
	}
	wait.Wait()
	var stats runtime.MemStats
	if runtime.ReadMemStats(&stats); stats.NumGC < 3 {
		panic(fmt.Sprint("only ", stats.NumGC, " garbage collections"))
	}
	fmt.Printf("%016x\n", digests)
}

package pattern_test

import (
	"fmt"

	"nvop/nvmeioctl/pattern"
)

// A block is written, lost, and found to be so.
func Example() {
	s, err := pattern.New(pattern.Config{Run: 7, Seed: 1, BlockBytes: 4096})
	if err != nil {
		fmt.Println(err)
		return
	}
	block := make([]byte, 4096)
	s.Fill(block, 15_000_000_000, 3)
	fmt.Println("right as generation 3:", s.Check(block, 15_000_000_000, 3) == 1)
	d := s.Diagnose(block, 15_000_000_000, pattern.Expected{Generation: 4, Known: true})
	fmt.Println("as generation 4:", d.Finding, "- found generation", d.Header.Generation)
	// Output:
	// right as generation 3: true
	// as generation 4: lost - found generation 3
}

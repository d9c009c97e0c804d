package sim

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"nvop/nvmeioctl"
)

// The cost of one random 4 KiB write, all in, on a full and busy drive.
func BenchmarkQueue_submitReap(b *testing.B) {
	for _, lapse := range []uint32{1, 500, 1789, 2034, 8000} {
		b.Run(fmt.Sprintf("lapse=%d", lapse), func(b *testing.B) {
			d := resized(b, "pblaze7-7940-7.68tb", 0, Options{})
			fill(b, d, scaledSpace(d, 2034), 2034)
			space := scaledSpace(d, lapse)
			w := newWorker(openQueue(b, d, 1, 256, lapse), randomOps(nvmeioctl.OpWrite, rand.NewPCG(1, 1), space, 4096))
			w.run(b, 1_000_000)
			b.ReportAllocs()
			b.ResetTimer()
			n := 0
			for b.Loop() {
				if n++; n == 256 {
					w.run(b, 256)
					n = 0
				}
			}
		})
	}
}

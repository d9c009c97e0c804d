package sim

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// bufferDrive has a write buffer of 1 MiB, protected or not, and no SLC cache.
func bufferDrive(t *testing.T, volatile bool) *Drive {
	t.Helper()
	p := profile(t, "client-1tb")
	p.VolatileWriteCache = volatile
	p.Flash.BufferBytes, p.Flash.SLCShare = 1<<20, 0
	d, err := New(p, Options{Scale: 1200})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// one carries out one request on an idle queue and returns how long it took.
func one(t *testing.T, q nvmeioctl.IOQueue, r nvmeioctl.IORequest) time.Duration {
	t.Helper()
	if n, err := q.Submit([]nvmeioctl.IORequest{r}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	var res [1]nvmeioctl.IOResult
	if n, err := q.Reap(res[:], nvmeioctl.Never); n != 1 || err != nil || res[0].Status != 0 {
		t.Fatal(n, err, res[0])
	}
	return res[0].Done.Sub(r.At)
}

// programmedBy is how many bytes the flash programs for rounds of writes to
// units mapping units, with what happens after each write.
func programmedBy(t *testing.T, d *Drive, rounds, units int, fua bool, after func(q nvmeioctl.IOQueue, at nvmeioctl.Instant)) uint64 {
	t.Helper()
	q := openQueue(t, d, 1, 1, 1)
	before := d.flash().count.programmedBytes
	at := nvmeioctl.Instant(0)
	for range rounds {
		for i := range units {
			at = at.Add(time.Second)
			one(t, q, nvmeioctl.IORequest{Op: nvmeioctl.OpWrite, OffsetBytes: int64(i*7%units) * 8192, LengthBytes: 4096, FUA: fua, At: at})
			if after != nil {
				after(q, at.Add(time.Second/2))
			}
		}
	}
	return d.flash().count.programmedBytes - before
}

// What is written again while it waits in the buffer is programmed once, unless
// the host makes the drive program it: which it can where the buffer would not
// survive a loss of power, and need not where it would.
func TestBuffer_absorbsRewrites(t *testing.T) {
	const unit, waits = 4096, 100 // of 256 that fit
	flush := func(q nvmeioctl.IOQueue, at nvmeioctl.Instant) {
		one(t, q, nvmeioctl.IORequest{Op: nvmeioctl.OpFlush, At: at})
	}
	for _, c := range []struct {
		name     string
		volatile bool
		units    int
		fua      bool
		after    func(nvmeioctl.IOQueue, nvmeioctl.Instant)
		want     uint64 // programs, of 5 rounds
	}{
		{"few units", true, waits, false, nil, waits},
		{"more than fit", true, 400, false, nil, 5 * 400},
		{"flushed, unprotected", true, waits, false, flush, 5 * waits},
		{"flushed, protected", false, waits, false, flush, waits},
		{"forced, unprotected", true, waits, true, nil, 5 * waits},
		{"forced, protected", false, waits, true, nil, waits},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := bufferDrive(t, c.volatile)
			// A unit in a hundred may lose its place to others.
			if got := programmedBy(t, d, 5, c.units, c.fua, c.after) / unit; got < c.want || got > c.want+c.want/20 {
				t.Errorf("%d units programmed, expected %d", got, c.want)
			}
		})
	}
}

// A power cycle, a deallocation and a format leave nothing waiting, and so
// does the feature that turns a volatile cache off.
func TestBuffer_drained(t *testing.T) {
	d := bufferDrive(t, true)
	h := host{t, d}
	const round = 50 * 4096
	want := func(what string, want uint64) {
		t.Helper()
		if got := programmedBy(t, d, 1, 50, false, nil); got < want || got > want+want/20 {
			t.Errorf("%s: %d bytes programmed, expected %d", what, got, want)
		}
	}
	want("new", round)
	trim := make([]byte, 16)
	trim[4] = 8
	h.want(nvmeioctl.Command{IO: true, Opcode: nvmespec.IOOpDatasetManagement, NSID: 1, CDW11: 4, Data: trim}, 0)
	want("after a deallocation", round)
	if err := d.PowerCycle(false); err != nil {
		t.Fatal(err)
	}
	want("after a loss of power", round)
	h.want(nvmeioctl.Command{Opcode: nvmespec.AdminSetFeatures, CDW10: uint32(nvmespec.FeatureWriteCache)}, 0)
	if got := programmedBy(t, d, 5, 50, false, nil); got != 5*round {
		t.Errorf("turned off: %d bytes programmed, expected %d", got, 5*round)
	}
}

// Writing is as quick as the buffer; what must be on the medium takes longer
// where the buffer is not protected, and a flush does if there is something to
// be programmed.
func TestBuffer_latency(t *testing.T) {
	for _, volatile := range []bool{true, false} {
		d := bufferDrive(t, volatile)
		f := d.Profile().Flash
		drain := f.DrainLatency
		if !volatile {
			drain = 0
		}
		q := openQueue(t, d, 1, 1, 1)
		at := nvmeioctl.Instant(0)
		for i, c := range []struct {
			r    nvmeioctl.IORequest
			want time.Duration
		}{
			{nvmeioctl.IORequest{Op: nvmeioctl.OpWrite, LengthBytes: 4096}, f.WriteLatency},
			{nvmeioctl.IORequest{Op: nvmeioctl.OpFlush}, f.WriteLatency + drain},
			{nvmeioctl.IORequest{Op: nvmeioctl.OpFlush}, f.WriteLatency},
			{nvmeioctl.IORequest{Op: nvmeioctl.OpWrite, LengthBytes: 4096, FUA: true}, f.WriteLatency + drain},
		} {
			at = at.Add(time.Second)
			c.r.At = at
			if got := one(t, q, c.r); got != c.want {
				t.Errorf("volatile %v, step %d: %v, expected %v", volatile, i, got, c.want)
			}
		}
	}
}

// A burst goes as fast as the SLC cache until that is full, and then as fast as
// the rest; a pause makes room for another. All that went through it has been
// programmed twice.
func TestSLC_fastThenSlow(t *testing.T) {
	p := profile(t, "client-1tb")
	d := resized(t, p.Name, 0, Options{})
	const lapse, block = 1000, 128 << 10
	q := openQueue(t, d, 1, 16, lapse)
	w := newWorker(q, sequentialOps(nvmeioctl.OpWrite, scaledSpace(d, lapse), block))
	fits := int(p.Flash.SLCShare*float64(p.CapacityBytes)) / (block * lapse)
	rate := func(n int) float64 {
		perSecond, _ := w.perSecond(t, n)
		return perSecond * block
	}
	within(t, "burst", rate(fits*9/10), p.Flash.SLCWriteBytesPerSecond, 0.02)
	rate(fits / 5) // over the edge
	within(t, "full", rate(fits), p.Flash.SequentialWriteBytesPerSecond, 0.02)
	full, m := mediaOf(d), d.flash()
	if waf := wafBetween(mediaCounters{}, full); waf < 1.3 || waf > 1.6 { // 1 of 2.1 parts went through it
		t.Errorf("WAF %.3f", waf)
	}
	// Under a time lapse pauses are shorter as well.
	pause := float64(m.slc.Level()) / p.Flash.SLCFoldBytesPerSecond / lapse
	m.slc.Idle(int64(pause*0.5e9), lapse)
	if left := float64(m.slc.Level()) / (p.Flash.SLCShare * float64(p.CapacityBytes)); left < 0.45 || left > 0.55 {
		t.Errorf("%.2f of the cache is left after half of the time it takes", left)
	}
	m.slc.Idle(int64(pause*0.6e9), lapse)
	rate(32) // those that waited
	within(t, "burst after a pause", rate(fits*8/10), p.Flash.SLCWriteBytesPerSecond, 0.02)
}

// The cache is in the state of a drive that has one, and nothing of it in that
// of one that has none; what cannot be is refused.
func TestSLC_state(t *testing.T) {
	with, without := resized(t, "client-1tb", 0, Options{Scale: 1200}), bufferDrive(t, true)
	q := openQueue(t, with, 1, 4, 100)
	write := func(ms int) {
		one(t, q, nvmeioctl.IORequest{Op: nvmeioctl.OpWrite, LengthBytes: 1 << 20, At: nvmeioctl.Instant(time.Duration(ms) * time.Millisecond)})
	}
	write(0)
	write(0)
	level, programmed := with.flash().slc.Level(), uint64(2*100<<20)
	if level != programmed {
		t.Errorf("%d bytes in the cache", level)
	}
	write(1000) // in the meantime everything is folded
	programmed += 100 << 20
	if level = with.flash().slc.Level(); level != 100<<20 {
		t.Errorf("%d bytes in the cache after a pause", level)
	}
	good, err := with.flash().MarshalBinary()
	if err != nil || string(good[:8]) != mediaMagic2 {
		t.Fatalf("%q, %v", good[:8], err)
	}
	fresh := resized(t, "client-1tb", 0, Options{Scale: 1200}).flash()
	if err := fresh.UnmarshalBinary(good); err != nil || fresh.slc.Level() != level || fresh.slc.Programmed() != programmed {
		t.Errorf("%+v, %v", fresh.slc, err)
	}
	bad := bytes.Clone(good)
	bad[8+3*8+7*8+7] = 0x7f
	if err := fresh.UnmarshalBinary(bad); !errors.Is(err, errMediaDamaged) || fresh.slc.Level() != level {
		t.Errorf("more in the cache than fits: %v", err)
	}
	plain, err := without.flash().MarshalBinary()
	if err != nil || string(plain[:8]) != mediaMagic {
		t.Errorf("%q, %v", plain[:8], err)
	}
	if err := errors.Join(without.flash().UnmarshalBinary(plain)); err != nil {
		t.Error(err)
	}
	if without.flash().UnmarshalBinary(good) == nil || fresh.UnmarshalBinary(plain) == nil {
		t.Error("a state with a cache passed for one without")
	}
}

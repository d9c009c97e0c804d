package sim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"nvop/endurance/predict"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/sim/ftl"
)

// randomDrive is a drive whose constants, T, w0, a and b of the law, lie anywhere
// within what drives have, and the scale and lapse that make it cheap.
func randomDrive(t *testing.T, rng *rand.Rand) (p Profile, scale, lapse uint32) {
	t.Helper()
	p = profile(t, "pblaze7-7940-7.68tb")
	raw := uint64(1) << (40 + rng.IntN(4))
	f := &p.Flash
	f.Layout = ftl.Layout{}
	f.NominalBytes, f.UsableBytes = raw, uint64(float64(raw)*(1.03+0.045*rng.Float64()))
	f.FloorWAF, f.CollectRatio = 1+0.04*rng.Float64(), 0.5*rng.Float64()
	f.BufferBytes, f.Ratings = 0, nil
	p.CapacityBytes = uint64(float64(f.UsableBytes)/(1.12+0.2*rng.Float64())) &^ (1<<20 - 1)
	f.RandomWriteBytes, f.RandomWriteIOPS = p.CapacityBytes, 50e3+400e3*rng.Float64()
	scale = uint32(raw / 4096 / 220_000)
	return p, scale, scale
}

// Drives with random constants, measured at one size as a soak would: the law,
// calibrated on that, tells their WAF at two others, and on both their rate at the
// third, where a and b are known. The simulated drive has superblocks of its own,
// neither many nor endlessly large, and is no law.
func TestPredict_ofRandomDrives(t *testing.T) {
	skipUnderRace(t)
	drives := 1
	if os.Getenv("NVOP_LONG") != "" {
		drives = 12
	}
	rng := rand.New(rand.NewPCG(8, 8))
	for i := range drives {
		p, scale, lapse := randomDrive(t, rng)
		d, err := New(p, Options{Scale: scale, Seed: uint64(i)})
		if err != nil {
			t.Fatal(err)
		}
		h := host{t, d}
		points := make([]predict.Point, 3)
		for k := range points {
			size := p.CapacityBytes
			if k > 0 {
				size = uint64(float64(size)*(0.55+0.4*rng.Float64())) &^ (1<<20 - 1)
				h.want(deleteCommand(1), 0)
				h.want(createBlocks(size/512, 0), 0)
				h.want(attachCommand(1, 1), 0)
			}
			waf, iops := steadySize(t, d, size, lapse, 2.5, 2)
			points[k] = predict.Point{CapacityBytes: size, WAF: waf, IOPS: iops}
		}
		name := fmt.Sprintf("drive %d (T %.3f, w0 %.3f, b/a %.2f)", i, float64(p.Flash.UsableBytes)/float64(p.Flash.NominalBytes), p.Flash.FloorWAF, p.Flash.CollectRatio)
		wantTold(t, name, p.Flash.NominalBytes, points[:1], points[1], 0.02, 0.09)
		wantTold(t, name, p.Flash.NominalBytes, points[:1], points[2], 0.02, 0.09)
		wantTold(t, name, p.Flash.NominalBytes, points[:2], points[2], 0.02, 0.05)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// wantTold predicts the truth from points, within shares of WAF and IOPS, and with
// the truth inside the intervals.
func wantTold(t *testing.T, name string, raw uint64, points []predict.Point, truth predict.Point, waf, iops float64) {
	t.Helper()
	answer, err := predict.Predict(predict.Request{Drive: predict.Drive{RawBytes: raw}, Points: points, Sizes: []uint64{truth.CapacityBytes}})
	if err != nil {
		t.Fatal(err)
	}
	told := answer.Points[0]
	name = fmt.Sprintf("%s at %.2f of the size by %d points", name, float64(truth.CapacityBytes)/float64(points[0].CapacityBytes), len(points))
	within(t, name+": WAF", told.WAF.Mid, truth.WAF, waf)
	within(t, name+": IOPS", told.RandomWriteIOPS.Mid, truth.IOPS, iops)
	if x := told.WAF; truth.WAF < x.Low || truth.WAF > x.High {
		t.Errorf("%s: WAF %.4f is not in %+v", name, truth.WAF, *x)
	}
	if x := told.RandomWriteIOPS; truth.IOPS < x.Low || truth.IOPS > x.High {
		t.Errorf("%s: %.0f IOPS are not in %+v", name, truth.IOPS, *x)
	}
}

// The client drive is told by its profile: what its SLC cache takes after a rest,
// and what it does when that is full.
func TestPredict_ofClient(t *testing.T) {
	skipUnderRace(t)
	p := profile(t, "client-1tb")
	answer, err := predict.Predict(predict.Request{Sizes: []uint64{p.CapacityBytes}, Drive: predict.Drive{
		UsableBytes: p.Flash.UsableBytes, FloorWAF: p.Flash.FloorWAF, BufferBytes: p.Flash.BufferBytes,
		CacheBytes: p.SLCBytes(), CacheWriteBytesPerSecond: p.Flash.SLCWriteBytesPerSecond,
		Published: []predict.Point{{CapacityBytes: p.Flash.RandomWriteBytes, IOPS: p.Flash.RandomWriteIOPS}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	told := answer.Points[0]
	const lapse = 1950
	d := resized(t, p.Name, 0, Options{Scale: lapse})
	space := scaledSpace(d, lapse)
	q := openQueue(t, d, 1, 256, lapse)
	w := newWorker(q, randomOps(nvmeioctl.OpWrite, rand.NewPCG(1, 1), space, 4096))
	rate, _ := w.perSecond(t, int(0.9*float64(told.BurstBytes)/lapse/4096))
	within(t, "IOPS after a rest", rate, *told.BurstWriteIOPS, 0.02)
	waf, iops := steady(t, d, lapse, 2.5, 1.5)
	within(t, "WAF", waf, told.WAF.Mid, 0.03)
	within(t, "IOPS", iops, told.RandomWriteIOPS.Mid, 0.03)
	if waf < told.WAF.Low || waf > told.WAF.High || iops < told.RandomWriteIOPS.Low || iops > told.RandomWriteIOPS.High {
		t.Errorf("WAF %.3f of %+v, %.0f IOPS of %+v", waf, *told.WAF, iops, *told.RandomWriteIOPS)
	}
}

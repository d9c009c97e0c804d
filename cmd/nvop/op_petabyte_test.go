package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A simulated petabyte goes through the whole engine, journal on, in under a
// minute: with NVOP_LONG=1. Without, a hundredth of it does, whatever it takes;
// and what is measured is what was predicted.
func TestSoak_simulatedPetabyte(t *testing.T) {
	long := os.Getenv("NVOP_LONG") != ""
	if raceDetector {
		t.Skip("long and single-threaded: runs without the race detector")
	}
	size := "10TB"
	if long {
		size = "1PB"
	}
	for _, c := range []struct{ rw, bs string }{{"write", "128KiB"}, {"randwrite", "4KiB"}} {
		t.Run(c.rw, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "d.nvop")
			created := call(t, "sim", "create", file, "-o", "json")
			var drive struct {
				Serial string `json:"serial"`
			}
			if err := json.Unmarshal([]byte(created.out), &drive); err != nil {
				t.Fatal(err, created.errout)
			}
			start := time.Now()
			r := call(t, "soak", "start", "sim:"+file, "--rw", c.rw, "--bs", c.bs, "--qd", "256", "--size", size,
				"--time-lapse", "8192", "--confirm-serial", drive.Serial, "-o", "json")
			took := time.Since(start)
			if r.code != 0 {
				t.Fatalf("exit code %d: %s", r.code, r.errout)
			}
			var result soakResult
			if err := json.Unmarshal([]byte(r.out), &result); err != nil {
				t.Fatal(err)
			}
			t.Logf("%s in %s of %s: %s (long %v)", size, c.bs, c.rw, took.Round(time.Millisecond), long)
			if long {
				if took > time.Minute {
					t.Errorf("%s took %s", size, took)
				}
				wantPredicted(t, c.rw, &result)
			}
		})
	}
}

// wantPredicted compares a soak with the prediction for its drive.
func wantPredicted(t *testing.T, rw string, result *soakResult) {
	t.Helper()
	workload := "uniform"
	if rw == "write" {
		workload = "sequential"
	}
	p := call(t, "op", "predict", "--model", "pblaze7-7940-7.68tb", "--size", "7.68TB", "--workload", workload, "-o", "json")
	var answer predictResult
	if err := json.Unmarshal([]byte(p.out), &answer); err != nil {
		t.Fatal(err)
	}
	if result.WAF == nil {
		t.Fatalf("no WAF: %s", result.WAFReason)
	}
	waf := answer.Points[0].WAF
	text := fmt.Sprintf("WAF %.3f, predicted %.3f to %.3f", *result.WAF, waf.Low, waf.High)
	t.Log(text)
	if *result.WAF < waf.Low || *result.WAF > waf.High {
		t.Error(text)
	}
	if iops := answer.Points[0].RandomWriteIOPS; rw != "write" && math.Abs(float64(result.WriteIOPS)/iops.Mid-1) > 0.05 {
		t.Errorf("%d IOPS, predicted %.0f", result.WriteIOPS, iops.Mid)
	}
}

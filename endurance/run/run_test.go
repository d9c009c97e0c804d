package run

import (
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func goodJob() Job {
	return Job{
		CapacityBytes: 1 << 40, LBABytes: 4096, TimeLapse: 1, Workers: 4,
		Phases: []Phase{
			{Kind: PhasePrecondition, Pattern: PatternSequential, BlockBytes: 131072, Depth: 32, End: End{Passes: 2}},
			{Kind: PhaseMeasure, Pattern: PatternRandom, BlockBytes: 4096, Depth: 64, End: End{DurationNS: 3600e9}},
			{Kind: PhaseVerify, Pattern: PatternNone},
		},
		Stops: []StopRule{{StopBytes, 1 << 50}, {StopTemperature, 70}},
	}
}

// Case C7 and its kin: no hidden limits, conflicting limits are an error, and
// so is an end that cannot be reached.
func TestJob_Validate(t *testing.T) {
	good := goodJob()
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Job)
		says   string
	}{
		"no end":                    {func(j *Job) { j.Phases[1].End = End{} }, "no end"},
		"two ends":                  {func(j *Job) { j.Phases[1].End.Bytes = 128e9 }, "2 ends, which conflict"},
		"reads never write":         {func(j *Job) { j.Phases[1].ReadPercent, j.Phases[1].End = 100, End{DriveWritesMilli: 1} }, "only reads"},
		"passes of replacement":     {func(j *Job) { j.Phases[1].Pattern, j.Phases[1].End = PatternReplacement, End{Passes: 1} }, "no passes"},
		"rule twice":                {func(j *Job) { j.Stops = append(j.Stops, StopRule{StopBytes, 5}) }, "conflict"},
		"rule against a phase":      {func(j *Job) { j.Stops[0] = StopRule{StopDuration, 1800e9} }, "conflicts with phase 1"},
		"rule unknown":              {func(j *Job) { j.Stops[0].Kind = "mood" }, "no stop rule"},
		"rule out of range":         {func(j *Job) { j.Stops[0] = StopRule{StopSpare, 101} }, "not within"},
		"phases out of order":       {func(j *Job) { j.Phases[0], j.Phases[1] = j.Phases[1], j.Phases[0] }, "cannot follow"},
		"no phases":                 {func(j *Job) { j.Phases = nil }, "no phases"},
		"kind unknown":              {func(j *Job) { j.Phases[0].Kind = "rest" }, "no kind of phase"},
		"pattern unknown":           {func(j *Job) { j.Phases[0].Pattern = "zigzag" }, "no pattern"},
		"an idle phase with an end": {func(j *Job) { j.Phases[2].End.Bytes = 1 }, "has no end"},
		"verification":              {func(j *Job) { j.Phases[2] = j.Phases[1]; j.Phases[2].Kind = PhaseVerify }, "must check its reads"},
		"a check of no reads":       {func(j *Job) { j.Phases[1].Check = CheckReads }, "reads nothing"},
		"a check that is none":      {func(j *Job) { j.Phases[1].Check = "perhaps" }, "no check"},
		"passes that replacement lacks": {func(j *Job) {
			j.Phases[1].Pattern, j.Phases[1].End, j.Phases[1].Check = PatternReplacement, End{Bytes: 1 << 30}, CheckEachPass
		}, "has passes"},
		"flushes trusted, never made": {func(j *Job) { j.Verify.Trust = TrustFlushed }, "nothing is ever flushed"},
		"a verifier that writes":      {func(j *Job) { j.Verify.Of = &VerifyOf{Run: "r1", Checkpoint: 3} }, "does not write"},
		"blocks below an LBA":         {func(j *Job) { j.Phases[1].BlockBytes = 512 }, "whole logical blocks"},
		"depth 0":                     {func(j *Job) { j.Phases[1].Depth = 0 }, "depth"},
		"101 % of reads":              {func(j *Job) { j.Phases[1].ReadPercent = 101 }, "reads"},
		"no workers":                  {func(j *Job) { j.Workers = 0 }, "no workers"},
		"lapse 0":                     {func(j *Job) { j.TimeLapse = 0 }, "time lapse 0"},
		"lapse beyond the drive":      {func(j *Job) { j.TimeLapse = 1 << 31 }, "leaves nothing"},
		"LBA of 500":                  {func(j *Job) { j.LBABytes = 500 }, "logical blocks"},
		"writes that would meet": {func(j *Job) {
			j.CapacityBytes = 4096 * 500
			j.Phases[0].BlockBytes = 4096
			j.Phases[1].Pattern = PatternReplacement
			j.Stops = nil
		}, "would meet"},
	} {
		j := goodJob()
		c.change(&j)
		if err := j.Validate(); !errors.Is(err, ErrJob) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUint128(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) Uint128 {
			return Uint128{Hi: rapid.Uint64().Draw(t, name+" hi"), Lo: rapid.Uint64().Draw(t, name+" lo")}
		}
		a, b := draw("a"), draw("b")
		modulus := new(big.Int).Lsh(big.NewInt(1), 128)
		if got, want := a.Add(b).Big(), new(big.Int).Mod(new(big.Int).Add(a.Big(), b.Big()), modulus); got.Cmp(want) != 0 {
			t.Fatalf("%v + %v = %v", a, b, got)
		}
		if got, want := a.Sub(b).Big(), new(big.Int).Mod(new(big.Int).Sub(a.Big(), b.Big()), modulus); got.Cmp(want) != 0 {
			t.Fatalf("%v - %v = %v", a, b, got)
		}
		if a.Cmp(b) != a.Big().Cmp(b.Big()) {
			t.Fatalf("%v, %v compare as %d", a, b, a.Cmp(b))
		}
		text, err := json.Marshal(a)
		var back Uint128
		if err != nil || string(text) != `"`+a.Big().String()+`"` || json.Unmarshal(text, &back) != nil || back != a {
			t.Fatalf("%v in JSON is %s, read back %v", a, text, back)
		}
	})
	var u Uint128
	for _, bad := range []string{"", "-1", "1.5", "340282366920938463463374607431768211456"} {
		if u.UnmarshalText([]byte(bad)) == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// A checkpoint survives JSON, which is how a journal may keep it.
func TestCheckpoint_JSON(t *testing.T) {
	cp := Checkpoint{
		Number: 3, State: StateRunning, LowWater: 5, ReservedHigh: 1 << 63,
		Workers: []WorkerMark{{Next: 7, Incomplete: []uint64{5, 6}}},
		Open:    []Histogram{{Write: true, Second: 60, Seconds: 3, Encoded: []byte{1, 0}}},
		First:   &Sample{MediaErrors: Uint128{Hi: 1, Lo: 2}},
	}
	b, err := json.Marshal(cp)
	if err != nil {
		t.Fatal(err)
	}
	var back Checkpoint
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	again, _ := json.Marshal(back)
	if string(again) != string(b) || back.ReservedHigh != 1<<63 || back.First.MediaErrors.Hi != 1 {
		t.Errorf("%s\n%s", b, again)
	}
}

func TestSample_temperatureAndHealth(t *testing.T) {
	s := Sample{TemperatureKelvin: 313, PercentageUsed: 255}
	if c, ok := s.TemperatureCelsius(); c != 40 || !ok {
		t.Errorf("%d, %v", c, ok)
	}
	if h, ok := s.HealthPercent(); h != -155 || !ok {
		t.Errorf("%d, %v", h, ok)
	}
	if _, ok := (&Sample{}).TemperatureCelsius(); ok {
		t.Error("0 K was reported as a temperature")
	}
	if _, ok := (&Sample{Failure: "x"}).HealthPercent(); ok {
		t.Error("a failed sample has health")
	}
}

package ftl

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A buffer finds no unit that does not wait.
func TestBuffer_equalsQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		units, lapse := rapid.Uint64Range(1, 40).Draw(t, "units"), rapid.Uint64Range(1, 4).Draw(t, "lapse")
		followQueue(t, units, lapse, rapid.SliceOfN(rapid.Uint64Range(0, 60), 1, 300).Draw(t, "keys"))
	})
}

// And it misses few of those that do: one in fifty.
func TestBuffer_missesFew(t *testing.T) {
	keys, rng := make([]uint64, 100_000), rand.New(rand.NewPCG(1, 1))
	for i := range keys {
		keys[i] = 1 + rng.Uint64N(2000)
	}
	found, missed := followQueue(t, 1000, 1, keys)
	t.Logf("%d units found, %d missed", found, missed)
	if found < 30_000 || missed > found/50 {
		t.Errorf("%d units found, %d missed", found, missed)
	}
}

// followQueue compares a buffer with a queue; a key of 0 drains both. What the
// buffer missed comes in anew.
func followQueue(t rapid.TB, units, lapse uint64, keys []uint64) (found, missed int) {
	b := NewBuffer(units)
	var queue []uint64 // first in, first out
	for _, key := range keys {
		if key == 0 {
			if b.Drain() != (len(queue) > 0) {
				t.Fatalf("something waited, or nothing did: %v", queue)
			}
			queue = nil
			continue
		}
		waits, got := slices.Contains(queue, key), b.Absorb(key, lapse)
		switch {
		case got && !waits:
			t.Fatalf("unit %d does not wait", key)
		case got:
			found++
			continue
		case waits:
			missed++
		}
		if b.Active(lapse) {
			queue = append(queue, key)
		}
		if len(queue) > int(units/lapse) {
			queue = queue[1:]
		}
	}
	return found, missed
}

func TestBuffer_none(t *testing.T) {
	var none Buffer
	b := NewBuffer(8)
	for range 2 {
		if none.Absorb(1, 1) || none.Drain() || none.Active(1) {
			t.Error("the zero value holds something")
		}
		if b.Absorb(1, 9) || !b.Active(8) {
			t.Error("a unit that stands for nine fits a buffer of eight")
		}
		none.Forget(1)
	}
	if b.Absorb(5, 1) || !b.Absorb(5, 1) {
		t.Error("a unit was not found")
	}
	if b.Forget(5); b.Absorb(5, 1) {
		t.Error("what was forgotten waits")
	}
}

func TestSLC(t *testing.T) {
	s, err := NewSLC(1000, 1e9) // a byte a ns
	if err != nil {
		t.Fatal(err)
	}
	if !s.Write(600) || s.Write(401) || !s.Write(400) || s.Level() != 1000 || s.Programmed() != 1000 {
		t.Errorf("%+v", s)
	}
	s.Idle(100, 3)
	s.Idle(-5, 1)
	if s.Level() != 700 || s.Programmed() != 1000 {
		t.Errorf("%+v", s)
	}
	s.Idle(math.MaxInt64, math.MaxUint32)
	if s.Level() != 0 {
		t.Errorf("%+v", s)
	}
	if s.Restore(1001, 2000) == nil || s.Restore(5, 4) == nil || s.Level() != 0 {
		t.Error("more than fits was restored")
	}
	for _, f := range []float64{0, -1, math.NaN(), math.Inf(1), 1e12} {
		if _, err := NewSLC(1, f); !errors.Is(err, ErrSLC) {
			t.Errorf("rate %g: %v", f, err)
		}
	}
	if _, err := NewSLC(0, 1e9); !errors.Is(err, ErrSLC) {
		t.Error(err)
	}
}

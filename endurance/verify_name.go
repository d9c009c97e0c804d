package endurance

import (
	"fmt"
	"slices"
	"strings"

	"nvop/endurance/run"
	"nvop/nvmeioctl/pattern"
)

// diagnose names what is wrong with a block. A kind of "" means that nothing is:
// it is one of the contents that it may have.
func (x *inspector) diagnose(block []byte, lba uint64) run.Mismatch {
	b := x.lookup.believe(lba, 2)
	e, print := b.expected()
	h, ok := pattern.ParseHeader(block)
	if ok && b.gap && h.Run == x.run && h.LBA == lba && h.Generation >= b.floor() && h.Generation < e.Generation && !slices.Contains(e.Or, h.Generation) {
		// Of so many writes in doubt that not all are listed: it says which it is.
		e.Or = append([]uint64{h.Generation}, e.Or...)
	}
	d := x.source.Diagnose(block, lba, e)
	m := run.Mismatch{
		LBA: lba, FoundHeader: d.HasHeader, FoundGeneration: d.Header.Generation,
		FoundLBA: d.Header.LBA, FoundRun: d.Header.Run, OffsetBytes: d.OffsetBytes, Bytes: d.Bytes,
	}
	if e.Known {
		m.ExpectedGeneration = d.Against
	}
	doubt := len(e.Or) != 0 || e.Known && b.writes[0].certainty != certain
	if m.Kind = x.kind(&d, &b, doubt); print != printNone && m.Kind == "" && d.Finding == pattern.Intact &&
		fingerprint(d.Header.Generation) != print && !x.lookup.inDoubt(d.Header.Generation) {
		m.Kind = run.MismatchLost
	}
	if m.Kind == run.MismatchLost && x.unmapped(&d, &e, lba) {
		m.Kind = ""
	}
	m.Text = x.describe(&d, &e, &m)
	m.Expected, m.Found = difference(&d, block)
	return m
}

// expected is what a block must hold, as far as it is known, and the fingerprint
// of its last write where only that is.
func (b *belief) expected() (e pattern.Expected, print byte) {
	open, certains := false, 0
	for i := range b.writes[:b.n] {
		w := &b.writes[i]
		switch {
		case w.open:
			if open = true; i == 0 {
				print = w.print
			}
		case !open && !e.Known:
			e.Generation, e.Known = w.generation, true
		default:
			if e.Known && certains == 0 {
				// All writes after it are in doubt: it may be there still.
				e.Or = append(e.Or, w.generation)
			}
			e.Before = append(e.Before, w.generation)
		}
		if w.certainty == certain {
			certains++
		}
	}
	// What was written before the expected write is what First is about.
	e.First = b.bottom && print == printNone && (b.n <= 1 || certains == 0)
	return e, print
}

// unmapped says whether a block that holds a later write than is known may do so:
// of a crash's last writes, where the order draws anew, the generation map may not
// know.
func (x *inspector) unmapped(d *pattern.Diagnosis, e *pattern.Expected, lba uint64) bool {
	h := &d.Header
	return x.lookup.generations != nil && d.Finding == pattern.Lost && d.HasHeader && h.Run == x.run && h.LBA == lba &&
		h.Generation > e.Generation && x.lookup.inDoubt(h.Generation)
}

// kind turns a finding into a mismatch, or into nothing where doubts allow it.
func (x *inspector) kind(d *pattern.Diagnosis, b *belief, doubt bool) run.MismatchKind {
	switch d.Finding {
	case pattern.Right, pattern.Blank:
		return ""
	case pattern.Intact:
		if d.Header.Generation < b.floor() {
			return run.MismatchLost
		}
		return ""
	case pattern.Lost:
		if doubt && x.mayBe(d, b) {
			return ""
		}
		return run.MismatchLost
	case pattern.Misdirected:
		return run.MismatchMisdirected
	case pattern.Torn:
		// Of a write in doubt a part may be there.
		if doubt || b.anyDoubt() {
			return ""
		}
		return run.MismatchTorn
	}
	return run.MismatchRotten
}

// mayBe says whether a block that holds an earlier content may do so, since all
// writes after that one are in doubt.
func (x *inspector) mayBe(d *pattern.Diagnosis, b *belief) bool {
	last := 0 // the first that is certain: nothing below it may be there
	for last < b.n && b.writes[last].certainty != certain {
		last++
	}
	if last == b.n && b.bottom {
		return true // everything ever written is in doubt
	}
	return d.HasHeader && d.Header.Run == x.run && d.Header.Generation >= b.writes[min(last, b.n-1)].generation
}

// anyDoubt says that a write that is not an open one is in doubt.
func (b *belief) anyDoubt() bool {
	for i := range b.writes[:b.n] {
		if b.writes[i].certainty == doubtful && !b.writes[i].open {
			return true
		}
	}
	return false
}

// difference is up to differenceBytes of what should be and what is.
func difference(d *pattern.Diagnosis, block []byte) (want, found []byte) {
	from := int(d.OffsetBytes)
	to := min(from+differenceBytes, len(block))
	found = append([]byte(nil), block[from:to]...)
	if d.Want != nil {
		want = append([]byte(nil), d.Want[from:to]...)
	}
	return want, found
}

// describe says in words what was found.
func (x *inspector) describe(d *pattern.Diagnosis, e *pattern.Expected, m *run.Mismatch) string {
	own := d.HasHeader && d.Header.Run == x.run
	var what string
	switch d.Finding {
	case pattern.Lost, pattern.Intact:
		switch {
		case !d.HasHeader:
			what = "holds nothing of this run"
		case !own:
			what = "holds " + run.GenerationText(d.Header.Generation) + " of " + x.owner(d.Header.Run)
		default:
			what = "holds " + run.GenerationText(d.Header.Generation)
			if e.Known && d.Header.LBA == m.LBA && d.Header.Generation > e.Generation {
				what += ", which is later than this journal knows"
			}
		}
	case pattern.Misdirected:
		what = fmt.Sprintf("holds the block of LBA %d, %s", d.Header.LBA, run.GenerationText(d.Header.Generation))
		if !own {
			what += " of " + x.owner(d.Header.Run)
		}
	case pattern.Torn:
		what = "is part of one write and part of another"
		if d.HasOther {
			what += " (" + run.GenerationText(d.Other) + ")"
		}
	default:
		what = "has changed bits"
		if d.HasHeader && !own {
			what += ", and the header of " + x.owner(d.Header.Run)
		}
	}
	if d.Want != nil {
		what += fmt.Sprintf(", %d bytes differ from byte %d on", d.Bytes, d.OffsetBytes)
		if len(e.Or) != 0 {
			what += ", compared with " + run.GenerationText(d.Against)
		}
	}
	return fmt.Sprintf("LBA %d: %s; %s", m.LBA, expectation(e), what)
}

// expectation says which generation was expected, or which.
func expectation(e *pattern.Expected) string {
	if !e.Known {
		return "generation not known"
	}
	text := run.GenerationText(e.Generation)
	if len(e.Or) == 0 {
		return text + " expected"
	}
	var earlier []string
	for _, g := range e.Or {
		earlier = append(earlier, run.GenerationText(g))
	}
	return text + " expected, or, since a write failed or was under way in a crash, " + strings.Join(earlier, " or ")
}

// owner names the run that wrote a block, by the number that it put there.
func (x *inspector) owner(number uint64) string {
	if name, ok := x.runs[number]; ok {
		return "run " + name
	}
	return fmt.Sprintf("another run, which this journal does not know (%016x)", number)
}

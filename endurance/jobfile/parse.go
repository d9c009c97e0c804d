package jobfile

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"nvop/endurance/run"
	"nvop/namespace/yamltree"
)

const (
	// maxFileBytes, maxPhases and maxDrives bound what a file can ask for.
	maxFileBytes = 256 << 10
	maxPhases    = 64
	maxDrives    = 256
)

// scalar is a value as it was written, with its place. Numbers stay text until
// they are read exactly.
type scalar struct {
	text string
	at   Place
	set  bool
}

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (s *scalar) UnmarshalYAML(node ast.Node) error {
	token := node.GetToken()
	s.at = placeOf(node)
	switch node.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		s.text, s.set = strings.TrimSpace(token.Value), true
		return nil
	case *ast.NullNode:
		return fault(s.at, "a value is missing")
	}
	return fault(s.at, "a single value belongs here, not a list, a mapping or an alias")
}

func placeOf(node ast.Node) Place {
	if t := node.GetToken(); t != nil && t.Position != nil {
		return Place{t.Position.Line, t.Position.Column}
	}
	return Place{}
}

// The document as it is written.
type document struct {
	Version        scalar          `yaml:"version"`
	Name           scalar          `yaml:"name"`
	Drives         []driveDocument `yaml:"drives"`
	Accept         []scalar        `yaml:"accept"`
	Seed           scalar          `yaml:"seed"`
	Workers        scalar          `yaml:"workers"`
	Pin            scalar          `yaml:"pin"`
	TimeLapse      scalar          `yaml:"time_lapse"`
	SampleInterval scalar          `yaml:"sample_interval"`
	Stall          scalar          `yaml:"stall"`
	Phases         []phaseDocument `yaml:"phases"`
	Stop           stopDocument    `yaml:"stop"`
	Pause          pauseDocument   `yaml:"pause"`
	Verify         verifyDocument  `yaml:"verify"`
	Data           scalar          `yaml:"data"`
	CompressRatio  scalar          `yaml:"compress_ratio"`
	DedupRatio     scalar          `yaml:"dedup_ratio"`
	OnEvent        []scalar        `yaml:"on_event"`
	Metrics        scalar          `yaml:"metrics"`
}

type driveDocument struct {
	Address scalar `yaml:"address"`
	NSID    scalar `yaml:"nsid"`
	Serial  scalar `yaml:"serial"`
}

type phaseDocument struct {
	Kind        scalar       `yaml:"kind"`
	Workload    scalar       `yaml:"workload"`
	RW          scalar       `yaml:"rw"`
	ReadPercent scalar       `yaml:"read_percent"`
	Order       scalar       `yaml:"order"`
	Block       scalar       `yaml:"block"`
	Split       scalar       `yaml:"bssplit"`
	Align       scalar       `yaml:"align"`
	Zones       scalar       `yaml:"zones"`
	Zipf        scalar       `yaml:"zipf"`
	Depth       scalar       `yaml:"depth"`
	Rate        rateDocument `yaml:"rate"`
	Check       scalar       `yaml:"check"`
	End         endDocument  `yaml:"end"`
	at          Place
}

type rateDocument struct {
	IOPS           scalar `yaml:"iops"`
	ReadIOPS       scalar `yaml:"read_iops"`
	WriteIOPS      scalar `yaml:"write_iops"`
	Bandwidth      scalar `yaml:"bandwidth"`
	ReadBandwidth  scalar `yaml:"read_bandwidth"`
	WriteBandwidth scalar `yaml:"write_bandwidth"`
	Arrival        scalar `yaml:"arrival"`
}

type endDocument struct {
	Size        scalar `yaml:"size"`
	Written     scalar `yaml:"written"`
	DriveWrites scalar `yaml:"drive_writes"`
	Passes      scalar `yaml:"passes"`
	Duration    scalar `yaml:"duration"`
}

type stopDocument struct {
	Bytes           scalar `yaml:"bytes"`
	DriveWrites     scalar `yaml:"drive_writes"`
	Hours           scalar `yaml:"hours"`
	Used            scalar `yaml:"used"`
	Spare           scalar `yaml:"spare"`
	Temperature     scalar `yaml:"temperature"`
	MediaErrors     scalar `yaml:"media_errors"`
	CriticalWarning scalar `yaml:"critical_warning"`
	Latency         scalar `yaml:"latency"`
}

type pauseDocument struct {
	At     scalar `yaml:"at"`
	Resume scalar `yaml:"resume"`
}

type verifyDocument struct {
	Trust         scalar `yaml:"trust"`
	FlushEvery    scalar `yaml:"flush_every"`
	GenerationMap scalar `yaml:"generation_map"`
}

// Parse reads a run file. name is used in errors, which are *Error.
func Parse(name string, text []byte) (*File, error) {
	f, err := parse(text)
	if e, ok := errors.AsType[*Error](err); ok {
		e.File = name
		return nil, e
	}
	return f, err
}

func parse(text []byte) (*File, error) {
	doc, err := read(text)
	if err != nil {
		return nil, err
	}
	r := &reader{}
	f := r.file(doc)
	return f, r.err
}

// read parses the text and turns it into a document. The library has been seen to
// panic on hostile text, so a panic becomes an error.
func read(text []byte) (doc document, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault(Place{}, "the file cannot be parsed: %v", p)
		}
	}()
	file, err := yamltree.Parse(text, maxFileBytes)
	if err != nil {
		return doc, libraryError(err)
	}
	var bodies []ast.Node
	for _, d := range file.Docs {
		if d.Body != nil {
			bodies = append(bodies, d.Body)
		}
	}
	switch {
	case len(bodies) == 0:
		return doc, fault(Place{}, "the file is empty")
	case len(bodies) > 1:
		return doc, fault(placeOf(bodies[1]), "the file holds more than one document")
	}
	var plain plainYAML
	ast.Walk(&plain, bodies[0])
	if plain.found != nil {
		return doc, plain.found
	}
	if err := yaml.NodeToValue(bodies[0], &doc, yaml.Strict()); err != nil {
		return doc, libraryError(err)
	}
	for i, at := range plain.phases {
		if i < len(doc.Phases) {
			doc.Phases[i].at = at
		}
	}
	return doc, nil
}

// plainYAML looks for what makes YAML more than a tree of plain values, and notes
// where the phases begin.
type plainYAML struct {
	found  error
	phases []Place
}

// Visit implements ast.Visitor.
func (v *plainYAML) Visit(node ast.Node) ast.Visitor {
	if v.found != nil {
		return nil
	}
	switch n := node.(type) {
	case *ast.TagNode, *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		v.found = fault(placeOf(node), "tags, anchors, aliases and merges are not used in a run file")
		return nil
	case *ast.MappingValueNode:
		list, ok := n.Value.(*ast.SequenceNode)
		if ok && n.Key != nil && n.Key.GetToken() != nil && n.Key.GetToken().Value == "phases" && len(v.phases) == 0 {
			for _, entry := range list.Values {
				v.phases = append(v.phases, firstPlace(entry))
			}
		}
	}
	return v
}

// firstPlace is where a mapping's first key is.
func firstPlace(node ast.Node) Place {
	switch m := node.(type) {
	case *ast.MappingNode:
		if len(m.Values) != 0 {
			return placeOf(m.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return placeOf(m.Key)
	}
	return placeOf(node)
}

// libraryError turns an error of the library into one line with its place.
func libraryError(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	at, reason := Place{}, err.Error()
	if e, ok := errors.AsType[*yamltree.Error](err); ok {
		at, reason = Place{e.Line, e.Column}, e.Reason
	} else if e, ok := errors.AsType[yaml.Error](err); ok {
		reason = e.GetMessage()
		if t := e.GetToken(); t != nil && t.Position != nil {
			at = Place{t.Position.Line, t.Position.Column}
		}
	}
	reason, _, _ = strings.Cut(reason, "\n")
	return fault(at, "%s", reason)
}

// reader turns scalars into values and keeps the first error.
type reader struct{ err error }

func (r *reader) fail(at Place, format string, args ...any) {
	if r.err == nil {
		r.err = fault(at, format, args...)
	}
}

// value reads a scalar by a function of this package; one that is not set is the
// zero value.
func value[T any](r *reader, s scalar, read func(string) (T, error)) T {
	var zero T
	if !s.set {
		return zero
	}
	v, err := read(s.text)
	if err != nil {
		r.fail(s.at, "%v", err)
		return zero
	}
	return v
}

// number reads a whole number of at least one.
func (r *reader) number(s scalar, high uint64) uint64 {
	return value(r, s, func(text string) (uint64, error) {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || n < 1 || n > high {
			return 0, fmt.Errorf("%q is no whole number from 1 to %d", text, high)
		}
		return n, nil
	})
}

func (r *reader) boolean(s scalar) bool {
	return value(r, s, func(text string) (bool, error) {
		if text != "true" && text != "false" {
			return false, fmt.Errorf("%q is neither true nor false", text)
		}
		return text == "true", nil
	})
}

func (r *reader) oneOf(s scalar, words ...string) string {
	if s.set && !slices.Contains(words, s.text) {
		r.fail(s.at, "%q is none of %s", s.text, strings.Join(words, ", "))
	}
	return s.text
}

func (r *reader) file(d document) *File {
	if !d.Version.set {
		r.fail(Place{1, 1}, `the version is missing: write "version: %d"`, Version)
	} else if d.Version.text != strconv.Itoa(Version) {
		r.fail(d.Version.at, "version %s is not known, this program reads version %d", d.Version.text, Version)
	}
	f := &File{
		Name: d.Name.text, Seed: 1, Workers: uint32(r.number(d.Workers, 4096)), Pin: r.boolean(d.Pin), TimeLapse: uint32(r.number(d.TimeLapse, math.MaxUint32)),
		SampleNS: int64(value(r, d.SampleInterval, Duration)), StallNS: int64(value(r, d.Stall, Duration)), Metrics: d.Metrics.text,
	}
	if strings.ContainsFunc(f.Name, func(c rune) bool { return c < ' ' || c == 0x7F }) {
		r.fail(d.Name.at, "the name holds control characters, which would spoil every list")
	}
	if d.Seed.set {
		f.Seed = value(r, d.Seed, func(text string) (uint64, error) { return strconv.ParseUint(text, 10, 64) })
	}
	for _, s := range d.Accept {
		f.Accept = append(f.Accept, s.text)
	}
	for _, s := range d.OnEvent {
		f.OnEvent = append(f.OnEvent, s.text)
	}
	if len(f.OnEvent) != 0 && f.OnEvent[0] == "" {
		r.fail(d.OnEvent[0].at, "the command has no name")
	}
	r.drives(f, d.Drives)
	if len(d.Phases) == 0 || len(d.Phases) > maxPhases {
		r.fail(Place{}, "a run has 1 to %d phases, this one %d", maxPhases, len(d.Phases))
	}
	for i := range d.Phases {
		p := r.phase(&d.Phases[i])
		if err := p.contradictions(); err != nil && r.err == nil {
			r.err = err
		}
		f.Phases = append(f.Phases, p)
	}
	if err := f.verifiable(); err != nil && r.err == nil {
		r.err = err
	}
	r.rules(f, &d)
	return f
}

func (r *reader) drives(f *File, list []driveDocument) {
	if len(list) > maxDrives {
		r.fail(list[maxDrives].Address.at, "more than %d drives", maxDrives)
	}
	for _, d := range list {
		x := Drive{Address: d.Address.text, NSID: uint32(r.number(d.NSID, 0xFFFFFFFE)), Serial: d.Serial.text, at: d.Address.at}
		if x.Address == "" {
			r.fail(firstOf(d.Address.at, d.NSID.at, d.Serial.at), "a drive needs its address")
		}
		if slices.ContainsFunc(f.Drives, func(have Drive) bool { return have.Address == x.Address && have.NSID == x.NSID }) {
			r.fail(x.at, "drive %s is there twice", x.Address)
		}
		f.Drives = append(f.Drives, x)
	}
}

// firstOf is the first place that is one.
func firstOf(places ...Place) Place {
	for _, p := range places {
		if p != (Place{}) {
			return p
		}
	}
	return Place{}
}

func (r *reader) phase(d *phaseDocument) Phase {
	p := Phase{
		Kind: run.PhaseKind(r.oneOf(d.Kind, "prepare", "precondition", "warm_up", "measure", "verify")), Workload: d.Workload.text,
		RW: d.RW.text, Order: d.Order.text, BlockBytes: value(r, d.Block, Block), AlignBytes: value(r, d.Align, Block),
		Zones: value(r, d.Zones, Zones), ZipfMilli: uint32(min(value(r, d.Zipf, Milli), math.MaxUint32)), Depth: uint32(r.number(d.Depth, 1<<16)),
		Check: run.Check(r.oneOf(d.Check, string(run.CheckReads), string(run.CheckEachPass))), at: d.at,
	}
	if !d.Kind.set {
		r.fail(d.at, "a phase needs its kind: prepare, precondition, warm_up, measure or verify")
	}
	if d.ReadPercent.set {
		n := value(r, d.ReadPercent, func(text string) (uint64, error) { return strconv.ParseUint(text, 10, 8) })
		percent := uint8(n)
		p.ReadPercent = &percent
	}
	if d.Split.set {
		var err error
		if p.Sizes, p.WriteSizes, err = Split(d.Split.text); err != nil {
			r.fail(d.Split.at, "%v", err)
		}
	}
	p.Rate = run.Rate{
		IOPS: r.number(d.Rate.IOPS, math.MaxInt64), ReadIOPS: r.number(d.Rate.ReadIOPS, math.MaxInt64), WriteIOPS: r.number(d.Rate.WriteIOPS, math.MaxInt64),
		BytesPerSecond: value(r, d.Rate.Bandwidth, Bytes), ReadBytesPerSecond: value(r, d.Rate.ReadBandwidth, Bytes),
		WriteBytesPerSecond: value(r, d.Rate.WriteBandwidth, Bytes),
		Arrival:             run.Arrival(r.oneOf(d.Rate.Arrival, string(run.ArrivalOpen), string(run.ArrivalClosed))),
	}
	p.Amount, p.Written = value(r, d.End.Size, Bytes), value(r, d.End.Written, Bytes)
	p.End = run.End{
		DriveWritesMilli: value(r, d.End.DriveWrites, Milli), Passes: r.number(d.End.Passes, math.MaxInt64), DurationNS: int64(value(r, d.End.Duration, Duration)),
	}
	return p
}

func (r *reader) rules(f *File, d *document) {
	s := &d.Stop
	for _, x := range []struct {
		kind run.StopKind
		s    scalar
	}{
		{run.StopBytes, s.Bytes}, {run.StopDriveWrites, s.DriveWrites}, {run.StopDuration, s.Hours}, {run.StopPercentageUsed, s.Used},
		{run.StopSpare, s.Spare}, {run.StopTemperature, s.Temperature}, {run.StopMediaErrors, s.MediaErrors},
		{run.StopCriticalWarning, s.CriticalWarning}, {run.StopLatency, s.Latency},
	} {
		if !x.s.set || x.kind == run.StopCriticalWarning && x.s.text == "false" {
			continue
		}
		rule := value(r, x.s, func(text string) (run.StopRule, error) { return stopRule(x.kind, text) })
		f.Stops = append(f.Stops, rule)
	}
	if d.Pause.At.set || d.Pause.Resume.set {
		text := d.Pause.At.text
		if d.Pause.Resume.set {
			text += ":" + d.Pause.Resume.text
		}
		f.Pause = value(r, scalar{text: text, at: firstOf(d.Pause.At.at, d.Pause.Resume.at), set: true}, PauseRule)
	}
	f.Verify = run.Verify{
		Trust:           run.Trust(r.oneOf(d.Verify.Trust, "completed", string(run.TrustFlushed))),
		FlushIntervalNS: int64(value(r, d.Verify.FlushEvery, Duration)), GenerationMap: r.boolean(d.Verify.GenerationMap),
	}
	if f.Verify.Trust == "completed" {
		f.Verify.Trust = run.TrustCompleted
	}
	f.Data = run.Data{
		HeaderOnly:       r.oneOf(d.Data, DataFull, DataHeaders) == DataHeaders,
		CompressPermille: value(r, d.CompressRatio, Ratio), DedupPermille: value(r, d.DedupRatio, Ratio),
	}
	if f.Data.HeaderOnly && (d.CompressRatio.set || d.DedupRatio.set) {
		r.fail(d.Data.at, "%s", HeadersHaveNoRatio("compress_ratio", "dedup_ratio"))
	}
}

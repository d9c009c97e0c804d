package namespace

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"nvop/nvmeioctl/nvmespec"
)

// PlanFileSchema names the JSON form of a PlanFile.
const PlanFileSchema = "nvop.plan-file/1"

// PlanFile is plans that were made to be looked at and carried out later.
type PlanFile struct {
	Schema    string    `json:"schema"`
	CreatedAt time.Time `json:"created_at"`
	// Spec is the file the plans were made from.
	Spec string `json:"spec"`
	// Digest is that of the plans: agreeing to it is agreeing to exactly these.
	Digest string `json:"digest"`
	Plans  []Plan `json:"plans"`
}

// Digest is the SHA-256 of everything in plans that a person agrees to: which
// drives, what they are like, and every step. What moves by itself (temperature,
// clocks, the time of reading) does not count, so that two readings of one drive
// give one digest.
func Digest(plans []Plan) string {
	h := sha256.New()
	for _, p := range plans {
		inv := p.Inventory
		inv.TakenAt, inv.Health, inv.Problems = time.Time{}, nil, nil
		inv.Namespaces = atRest(inv.Namespaces)
		p.JudgedOnly = nil // no step is about it
		inv.SelfTestRunning = false
		p.Before, p.After = atRest(p.Before), atRest(p.After)
		if s := inv.FirmwareState; s != nil {
			still := *s
			still.PowerCycles = nil
			inv.FirmwareState = &still
		}
		inv.Features = slices.DeleteFunc(slices.Clone(inv.Features), func(r FeatureReading) bool { return r.Feature == nvmespec.FeatureTimestamp })
		p.Inventory = inv
		h.Write(mustJSON(p))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// atRest is namespaces without what their users change.
func atRest(list []Namespace) []Namespace {
	list = slices.Clone(list)
	for i := range list {
		list[i].UsedBlocks = 0
	}
	return list
}

// NewPlanFile is plans ready to be written.
func NewPlanFile(plans []Plan, spec string, now time.Time) PlanFile {
	return PlanFile{Schema: PlanFileSchema, CreatedAt: now.UTC(), Spec: spec, Digest: Digest(plans), Plans: plans}
}

// planFileMaxBytes bounds a plan file: some thousand drives.
const planFileMaxBytes = 256 << 20

// ParsePlanFile reads a plan file and refuses one that is not as it was written.
func ParsePlanFile(name string, text []byte) (PlanFile, error) {
	var f PlanFile
	if len(text) > planFileMaxBytes {
		return f, fmt.Errorf("%s: more than %d bytes are no plan file", name, planFileMaxBytes)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		return f, fmt.Errorf("%s: not a plan file: %w", name, err)
	}
	if err := dec.Decode(new(json.RawMessage)); !errors.Is(err, io.EOF) {
		return f, fmt.Errorf("%s: not a plan file: something follows its end", name)
	}
	if f.Schema != PlanFileSchema {
		return f, fmt.Errorf("%s: not a plan file this program reads: its schema is %.40q, not %s", name, f.Schema, PlanFileSchema)
	}
	if len(f.Plans) == 0 {
		return f, fmt.Errorf("%s: it holds no plan", name)
	}
	if got := Digest(f.Plans); got != f.Digest {
		return f, fmt.Errorf("%s: its plans have the digest %s, it says %.64s: it was changed, or written by another version; make the plan again", name, got, f.Digest)
	}
	for i := range f.Plans {
		for k, step := range f.Plans[i].Steps {
			if step.Index != k {
				return f, fmt.Errorf("%s: plan %d: step %d has the index %d", name, i+1, k, step.Index)
			}
		}
	}
	return f, nil
}

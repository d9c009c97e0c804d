package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"nvop/cmd/nvop/internal/render"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/nvmespec/vendor"
)

type decodeCmd struct {
	Kind string `arg:"" help:"What the dump is: id-ctrl, id-ns, smart, ... (nvop decode --kinds lists all)." placeholder:"KIND" optional:""`
	File string `arg:"" help:"The dump as nvme-cli saves it with --raw-binary; - for standard input." placeholder:"FILE" optional:""`
	List bool   `name:"kinds" help:"List the kinds."`
}

func (decodeCmd) Help() string {
	return "Needs no drive and no root.\n\nExample:\n  nvme id-ctrl /dev/nvme0 --raw-binary > id.bin\n  nvop decode id-ctrl id.bin -o json"
}

type kindsResult struct {
	Schema string   `json:"schema"`
	Kinds  []string `json:"kinds"`
}

func (r kindsResult) Text(p *render.Page) { p.Line("%s", strings.Join(r.Kinds, "\n")) }

// dumpLimit bounds what decode reads: far above any structure.
const dumpLimit = 16 << 20

func (c decodeCmd) Run(a *app) error {
	if c.List {
		return a.print(kindsResult{"nvop.decode-kinds/1", vendor.Kinds()})
	}
	if c.Kind == "" || c.File == "" {
		return usagef("decode needs a KIND and a FILE; the kinds are %s", strings.Join(vendor.Kinds(), ", "))
	}
	limit := dumpLimit
	if strings.HasPrefix(plainName(c.Kind), "telemetry") {
		limit = 0 // only the header has a layout, however long the rest is
	}
	raw, err := readDump(a.in, c.File, limit)
	if err != nil {
		return err
	}
	v, err := vendor.DecodeKind(plainName(c.Kind), raw)
	if err == nil {
		err = nvmespec.Plausible(plainName(c.Kind), raw)
	}
	if errors.Is(err, nvmespec.ErrUnknownKind) {
		return &codedError{exitUsage, err}
	}
	if err != nil {
		return fmt.Errorf("%s: not a dump of kind %s: %w", c.File, c.Kind, err)
	}
	return a.print(logResult{Schema: "nvop.decode/1", Log: c.Kind, Value: v})
}

// readDump reads a dump of at most limit bytes; with 0 only the first 4096 of it.
func readDump(in io.Reader, path string, limit int) ([]byte, error) {
	if path != "-" {
		f, err := openInput(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	var buf bytes.Buffer
	if limit == 0 {
		_, err := io.Copy(&buf, io.LimitReader(in, nvmespec.IdentifySize))
		return buf.Bytes(), err
	}
	n, err := io.Copy(&buf, io.LimitReader(in, int64(limit)+1))
	if err != nil {
		return nil, err
	}
	if n > int64(limit) {
		return nil, fmt.Errorf("%s: longer than %d bytes; this is no dump of one structure", path, limit)
	}
	return buf.Bytes(), nil
}

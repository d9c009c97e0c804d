package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/layer"
	"nvop/nvmeioctl/nvmetcp"
)

// serveReplay serves a recording to hosts, which can read of it what was
// recorded. A host sees a drive whose blocks cannot be read.
func (c simServeCmd) serveReplay(ctx context.Context, a *app) (err error) {
	if c.Fault != "" {
		return usagef("--fault is for simulated drives; a recording answers what was recorded")
	}
	d, err := a.open(c.File)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	replay, ok := d.dev.(*layer.Replay)
	if !ok {
		return fmt.Errorf("%s: not a recording", c.File)
	}
	inv, err := d.inventory(ctx)
	if err != nil {
		return err
	}
	var logMu sync.Mutex
	t, err := nvmetcp.New(ctx, nvmetcp.Config{
		SubsystemNQN: c.NQN, Controllers: []nvmeioctl.Device{replay.Served()}, Clock: a.clock,
		Log: func(line string) {
			logMu.Lock()
			defer logMu.Unlock()
			a.note("%s", line)
		},
	})
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return err
	}
	s := &server{app: a, cmd: c, target: t, controllers: 1}
	if err := a.print(s.result(ln.Addr(), c.File, inv.Identity.Serial)); err != nil {
		return errors.Join(err, ln.Close())
	}
	return t.Serve(ctx, ln)
}

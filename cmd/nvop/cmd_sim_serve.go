package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"nvop/cmd/nvop/internal/render"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/fault"
	"nvop/nvmeioctl/nvmetcp"
	"nvop/nvmeioctl/sim"
)

type simServeCmd struct {
	File      string        `arg:"" help:"The drive: FILE or sim:FILE, sim:PROFILE for one that lives as long as the command, or replay:FILE for a recording." placeholder:"FILE"`
	Listen    string        `default:"127.0.0.1:4420" help:"Address and port to listen on." placeholder:"HOST:PORT"`
	NQN       string        `name:"nqn" help:"Name of the subsystem (default: the drive's own)." placeholder:"NQN"`
	Fault     string        `help:"Misbehave as this script, or the one in the file @FILE, says: \"fail 3rd write with 0x4281; after create power-cut\". nvop sim faults lists what there is, nvop sim fault adds to it at run time." placeholder:"EXPR"`
	Outage    time.Duration `default:"5s" help:"How long the power stays off after a power cut." placeholder:"TIME"`
	ClockRate uint32        `default:"1" help:"How many seconds pass on the drive in one second." placeholder:"N"`
	SaveEvery time.Duration `default:"10s" help:"How often the drive's counters are saved while it is used." placeholder:"TIME"`
}

func (simServeCmd) Help() string {
	return "Makes a simulated drive an NVMe/TCP subsystem that a Linux host can connect to with nvme-cli, until it is interrupted. " +
		"Example: nvop sim serve drive.nvop"
}

type simServeResult struct {
	Schema       string   `json:"schema"`
	Drive        string   `json:"drive"`
	Serial       string   `json:"serial"`
	Address      string   `json:"address"`
	Port         string   `json:"port"`
	SubsystemNQN string   `json:"subsystem_nqn"`
	Controllers  int      `json:"controllers"`
	Connect      string   `json:"connect"`
	Commands     []string `json:"commands"`
}

func (r simServeResult) Text(p *render.Page) {
	p.Line("serving %s, serial number %s, on %s port %s until interrupted", r.Drive, r.Serial, r.Address, r.Port)
	p.Line("as root, on the host that is to have the drive:")
	for _, c := range r.Commands {
		p.Line("  %s", c)
	}
}

func (c simServeCmd) Run(ctx context.Context, a *app) (err error) {
	if c.Outage <= 0 || c.SaveEvery <= 0 || c.ClockRate == 0 {
		return usagef("--outage, --save-every and --clock-rate must be more than 0")
	}
	script, err := readScript(c.Fault)
	if err != nil {
		return err
	}
	plan, err := parseScript(script)
	if err != nil {
		return err
	}
	if strings.HasPrefix(c.File, "replay:") {
		return c.serveReplay(ctx, a)
	}
	address := c.File
	if !strings.HasPrefix(address, "sim:") {
		address = "sim:" + address
	}
	d, err := a.open(address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.sim.KeepContents(); errors.Is(err, nvmeioctl.ErrNotSupported) {
		a.note("the drive keeps no contents: whatever is written reads as zeros")
	} else if err != nil {
		return err
	}
	s := &server{app: a, cmd: c, drive: d.sim, gone: make(chan struct{}, 1)}
	if err := s.prepare(ctx, plan); err != nil {
		return err
	}
	ln, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return err
	}
	inv, err := d.inventory(ctx)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	control, err := s.openControl(strings.TrimPrefix(address, "sim:"))
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	r := s.result(ln.Addr(), address, inv.Identity.Serial)
	if err := a.print(r); err != nil {
		return errors.Join(err, ln.Close(), control.close())
	}
	return errors.Join(s.run(ctx, ln, control), control.close())
}

// server is one run of the command.
type server struct {
	app    *app
	cmd    simServeCmd
	drive  *sim.Drive
	target *nvmetcp.Target
	// controllers is how many there are.
	controllers int
	gone        chan struct{}
	// saveError is the last that the user has been told of.
	saveError string
}

// prepare makes the target of all the drive's controllers.
func (s *server) prepare(ctx context.Context, plan fault.Plan) error {
	first := s.drive.Profile().FirstController
	var devices []nvmeioctl.Device
	for id := first; ; id++ {
		dev, err := s.drive.OpenController(id)
		if err != nil {
			break // there are no more
		}
		devices = append(devices, dev)
	}
	s.controllers = len(devices)
	var logMu sync.Mutex
	t, err := nvmetcp.New(ctx, nvmetcp.Config{
		SubsystemNQN: s.cmd.NQN, Controllers: devices, Clock: s.app.clock,
		Log: func(line string) {
			logMu.Lock()
			defer logMu.Unlock()
			s.app.note("%s", line)
		},
		Gone: s.wakePower,
	})
	if err != nil {
		return err
	}
	s.target = t
	// The target's own look at the drive does not count.
	s.drive.ServeHosts(s.app.clock)
	return s.drive.Arm(plan)
}

// wakePower has keepPower look at the drive.
func (s *server) wakePower() {
	select {
	case s.gone <- struct{}{}:
	default:
	}
}

// checkPower does so if the power is off: a fault may have cut it while no host
// sent anything.
func (s *server) checkPower() {
	if s.drive.PowerOff() {
		s.wakePower()
	}
}

// result tells how to connect, and warns of an address that others can reach.
func (s *server) result(addr net.Addr, address, serial string) simServeResult {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		host, port = addr.String(), ""
	}
	ip := net.ParseIP(host)
	if ip == nil || !ip.IsLoopback() {
		s.app.note("warning: %s is not this host's loopback: whoever reaches it can read, write and format the drive, without a password", host)
	}
	if ip != nil && ip.IsUnspecified() {
		host = "ADDRESS"
	}
	connect := fmt.Sprintf("nvme connect -t tcp -a %s -s %s -n %s", host, port, s.target.SubsystemNQN())
	return simServeResult{
		Schema: "nvop.sim-serve/1", Drive: address, Serial: serial, Address: host, Port: port,
		SubsystemNQN: s.target.SubsystemNQN(), Controllers: s.controllers, Connect: connect,
		Commands: []string{"modprobe nvme-tcp", connect, "nvme list", "nvme disconnect -n " + s.target.SubsystemNQN()},
	}
}

// run serves until ctx is done. The drive's clock runs with the wall's, and its
// state is saved now and then, at every power cut, and at the end.
func (s *server) run(ctx context.Context, ln net.Listener, control *controlSocket) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	if control != nil {
		wg.Go(func() { cancel(s.control(ctx, control.ln)) })
	}
	wg.Go(func() { cancel(s.keepTime(ctx)) })
	wg.Go(func() { cancel(s.keepPower(ctx)) })
	err := s.target.Serve(ctx, ln)
	cancel(err)
	wg.Wait()
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return errors.Join(err, s.stop())
}

// stop is an orderly end: what is in the drive's cache goes to its medium.
func (s *server) stop() error { return s.drive.Shutdown() }

// keepTime lets time pass on the drive, and saves what it has counted.
func (s *server) keepTime(ctx context.Context) error {
	const tick = time.Second
	clock := s.app.clock
	last, saved, commands := clock.Now(), clock.Now(), uint64(0)
	for clock.Sleep(ctx, tick) == nil {
		now := clock.Now()
		passed := now.Sub(last) * time.Duration(s.cmd.ClockRate)
		last = now
		s.drive.Clock().AdvanceTo(s.drive.Clock().Now().Add(passed))
		s.drive.Tick()
		s.checkPower()
		s.tellSaveError()
		if n := s.target.Stats().Commands; n != commands && now.Sub(saved) >= s.cmd.SaveEvery {
			commands, saved = n, now
			if err := s.drive.Save(s.drive.Checkpoint()); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// tellSaveError says once why the host's file system keeps the drive from being
// saved: to hosts it is a failing drive.
func (s *server) tellSaveError() {
	text := ""
	if err := s.drive.SaveError(); err != nil {
		text = err.Error()
	}
	if text != "" && text != s.saveError {
		s.app.note("the drive fails because of this host: %s", text)
	}
	s.saveError = text
}

// keepPower takes the drive off the network while its power is cut.
func (s *server) keepPower(ctx context.Context) error {
	for {
		select {
		case <-s.gone:
		case <-ctx.Done():
			return ctx.Err()
		}
		if !s.drive.PowerOff() {
			if err := s.drive.SaveError(); err != nil {
				return err
			}
			continue
		}
		s.target.SetOffline(true)
		s.app.note("the drive has lost its power; it is back in %s", s.cmd.Outage)
		if err := s.app.clock.Sleep(ctx, s.cmd.Outage); err != nil {
			return err
		}
		if err := s.drive.PowerOn(); err != nil {
			return err
		}
		s.target.SetOffline(false)
		s.app.note("the drive has its power again")
	}
}

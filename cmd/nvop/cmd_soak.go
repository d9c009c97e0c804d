package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/alecthomas/kong"

	"nvop/endurance/jobfile"
	"nvop/endurance/run"
	"nvop/journal"
	"nvop/nvmeioctl/nvmespec"
)

type soakCmd struct {
	Start  soakStartCmd  `cmd:"" help:"Start a soak of one or more drives; it runs until its end, a stop rule or Ctrl-C."`
	Resume soakResumeCmd `cmd:"" help:"Carry on a soak that was interrupted or killed, or all of them."`
	Verify soakVerifyCmd `cmd:"" help:"Compare the whole drive with what a soak wrote there."`
	Stop   soakStopCmd   `cmd:"" help:"Stop a soak that runs in another process; it can be resumed."`
	Status soakStatusCmd `cmd:"" help:"Show where a soak stands."`
	List   soakListCmd   `cmd:"" help:"List the soaks in the journal."`
	Check  soakCheckCmd  `cmd:"" help:"Check a run file and show what it comes to: hours, bytes, wear, memory."`
	Schema soakSchemaCmd `cmd:"" help:"Print the JSON schema of run files."`
	Unit   soakUnitCmd   `cmd:"" help:"Print a systemd unit that carries interrupted soaks on after a restart."`
}

type soakStartCmd struct {
	Addresses []string `arg:"" optional:"" name:"addr" help:"/dev/nvme0n1, sim:FILE, sim:PROFILE or file:PATH; several are soaked side by side." placeholder:"ADDR"`
	Name      string   `help:"What to call the run." placeholder:"NAME"`
	File      string   `name:"file" type:"path" help:"A run file (YAML) that says what is done, instead of flags." placeholder:"FILE"`
	DryRun    bool     `help:"Show what it would come to, and do nothing."`
	jobFlags
	watchFlags
	soakFlags
}

// watchFlags say who is told of a run besides the journal.
type watchFlags struct {
	OnEvent []string `help:"Run this program at each event, told by environment variables (NVOP_EVENT, NVOP_EVENT_TEXT, NVOP_RUN, NVOP_SERIAL ...), without a shell; given again, its arguments, and with = where one begins with a dash: --on-event=-v. It may take 30 s for an event and is killed then; at the end the last events are waited for as long." placeholder:"PROGRAM" sep:"none"`
	Metrics string   `type:"path" help:"Keep figures in this file for a Prometheus node exporter's textfile collector." placeholder:"FILE.prom"`
}

func (soakStartCmd) Help() string {
	return `Everything is journaled at least once a second of the drive's clock: after a kill or a reboot, soak resume goes on, and nothing is counted twice. The clock of a simulated drive goes with its work: without a time lapse one of its seconds may take many of yours, until which status shows nothing new and a kill loses what was not yet journaled. Of several drives each is a run of its own; one that ends does not end the others, and the exit code is the worst.

Example:
  nvop soak start /dev/nvme0n1 --rw randwrite --bs 4KiB --qd 256 --duration 24h --stop temperature=80 --pause 75:65 --confirm-serial S1234
  nvop soak start /dev/nvme0n1 /dev/nvme1n1 --workload jesd219 --qd 256 --drive-writes 3000 --confirm-serial S1234,S1235
  nvop soak start --file month.yaml --confirm-serial S1234
  nvop soak start sim:drive.nvop --rw randwrite --size 100TB --time-lapse 2048 --confirm-serial SIM1`
}

// jobFile is what is to be done, from the run file or the flags.
func (c soakStartCmd) jobFile(ctx context.Context) (*jobfile.File, error) {
	f, err := c.fileOrFlags(ctx)
	if err != nil {
		return nil, err
	}
	if c.Name != "" {
		f.Name = c.Name
	}
	if strings.ContainsFunc(f.Name, unicode.IsControl) {
		return nil, usagef("--name %q: control characters would spoil every list", f.Name)
	}
	return f, nil
}

func (c soakStartCmd) fileOrFlags(ctx context.Context) (*jobfile.File, error) {
	if c.File == "" {
		return c.file()
	}
	usual, err := usualFlags()
	if err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(c.jobFlags, usual) {
		return nil, usagef("--file says what is done: leave out the flags that say something else")
	}
	return readJobFile(ctx, c.File)
}

// usualFlags are those of a command line that says nothing.
func usualFlags() (jobFlags, error) {
	var usual struct{ jobFlags }
	parser, err := kong.New(&usual)
	if err == nil {
		_, err = parser.Parse(nil)
	}
	return usual.jobFlags, err
}

// readJobFile reads a run file. It gives up when ctx is done, however long the
// parser takes; the parser's work ends with the process then.
func readJobFile(ctx context.Context, path string) (*jobfile.File, error) {
	const most = 1 << 20
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, usagef("%s is no run file", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	type answer struct {
		file *jobfile.File
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		f, err := jobfile.Parse(path, text)
		answers <- answer{f, err}
	}()
	var a answer
	select {
	case a = <-answers:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return nil, &codedError{exitInterrupted, fmt.Errorf("interrupted while %s was read; nothing was done", path)}
	}
	return a.file, a.err
}

// drivesOf are the drives that a command line or a run file names.
func drivesOf(addresses []string, f *jobfile.File) ([]jobfile.Drive, error) {
	switch {
	case len(addresses) != 0 && len(f.Drives) != 0:
		return nil, usagef("the run file names its drives: leave them out of the one or the other")
	case len(addresses) == 0 && len(f.Drives) == 0:
		return nil, usagef("which drive? give an address: /dev/nvme0n1, sim:FILE, file:PATH")
	}
	drives := slices.Clone(f.Drives)
	for _, a := range addresses {
		if slices.ContainsFunc(drives, func(d jobfile.Drive) bool { return d.Address == a }) {
			return nil, usagef("%s is named twice", a)
		}
		drives = append(drives, jobfile.Drive{Address: a})
	}
	for i, d := range drives {
		for _, other := range drives[:i] {
			if oneSimulated(d.Address, other.Address) {
				return nil, usagef("%s and %s are one drive, named twice", other.Address, d.Address)
			}
		}
	}
	return drives, nil
}

// oneSimulated says whether two addresses are of one simulated drive: of that the
// second could only be told that another process has it.
func oneSimulated(a, b string) bool {
	first, isFirst := strings.CutPrefix(a, "sim:")
	second, isSecond := strings.CutPrefix(b, "sim:")
	if !isFirst || !isSecond {
		return false
	}
	x, xerr := os.Stat(first)
	y, yerr := os.Stat(second)
	return xerr == nil && yerr == nil && os.SameFile(x, y)
}

func (c soakStartCmd) Run(ctx context.Context, a *app) (err error) {
	f, err := c.jobFile(ctx)
	if err != nil {
		return err
	}
	drives, err := drivesOf(c.Addresses, f)
	if err != nil {
		return err
	}
	c.Accept = append(c.Accept, f.Accept...)
	watch := c.watchFlags
	if len(watch.OnEvent) == 0 {
		watch.OnEvent = f.OnEvent
	}
	watch.Metrics = cmp.Or(watch.Metrics, f.Metrics)
	g, err := a.newSoakGroup(c.soakFlags, watch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	for _, d := range drives {
		if err := g.add(ctx, d, f); err != nil {
			return inFile(err, c.File)
		}
	}
	if c.DryRun {
		if err := g.wouldRefuse(); err != nil {
			return err
		}
		return a.print(g.plan(ctx, f))
	}
	if err := g.prepare(ctx, "soak start "+cmp.Or(c.RW, c.Workload, c.File)); err != nil {
		return err
	}
	if err := g.lookBack(ctx); err != nil {
		return err
	}
	return g.start(ctx, f.Name)
}

// inFile adds the file's name to an error with a place in it.
func inFile(err error, path string) error {
	if e, ok := errors.AsType[*jobfile.Error](err); ok && path != "" {
		e.File = path
	}
	return err
}

type soakResumeCmd struct {
	Run_    string `arg:"" name:"run" optional:"" help:"The run, by ID or name (default: the last one)." placeholder:"RUN"`
	All     bool   `help:"Carry on every soak that was interrupted and whose drive is there, side by side."`
	Address string `help:"Where the drive is now, if its address has changed." placeholder:"ADDR"`
	watchFlags
	soakFlags
}

func (soakResumeCmd) Help() string {
	return `Binds to the same drive by its identity, whatever its node is called now, and needs the same consent as the start. With --all a drive that is not there, or was not agreed to, does not keep the others from going on.

Example:
  nvop soak resume r3 --confirm-serial S1234
  nvop soak resume --all --confirm-serial S1234,S1235`
}

func (c soakResumeCmd) Run(ctx context.Context, a *app) (err error) {
	if c.All && (c.Run_ != "" || c.Address != "") {
		return usagef("--all means every run: leave out the run and --address")
	}
	g, err := a.newSoakGroup(c.soakFlags, c.watchFlags)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	if c.All {
		return c.all(ctx, a, g)
	}
	info, err := a.findRun(ctx, c.Run_)
	if err != nil {
		return err
	}
	if !info.State.Resumable() {
		return fmt.Errorf("run %s is %s: there is nothing to resume", info.ID, info.State)
	}
	if err := g.addRun(ctx, info, c.Address); err != nil {
		return err
	}
	return g.resume(ctx)
}

// all goes on with every run that can be resumed and is at work nowhere.
func (c soakResumeCmd) all(ctx context.Context, a *app, g *soakGroup) error {
	infos, err := a.allRuns(ctx)
	if err != nil {
		return err
	}
	for _, info := range infos {
		if !info.State.Resumable() || a.runs(info) || passing(info.Header.Address) {
			continue
		}
		if err := g.addRun(ctx, info, ""); err != nil {
			g.failed(ctx, info, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	g.always = true
	return g.resume(ctx)
}

// whereIs finds the address of the run's drive today: where it was, or the
// controller of this host with its serial number.
func whereIs(h run.Header, address string) (string, error) {
	if address != "" || h.Simulated || h.Serial == "file:"+h.Address || h.Model == "file" {
		return cmp.Or(address, h.Address), nil
	}
	return findBySerial(h)
}

// addRun adds a run that is to be resumed.
func (g *soakGroup) addRun(ctx context.Context, info journal.RunInfo, address string) error {
	if passing(info.Header.Address) {
		return fmt.Errorf("run %s was on %s, a drive that lived as long as the command: there is nothing left of it (nvop sim create makes one that stays)", info.ID, info.Header.Address)
	}
	address, err := whereIs(info.Header, address)
	if err != nil {
		return err
	}
	flags := g.flags
	flags.NSID, flags.Overwrite, flags.resumed = nsidFlag(info.Header.NSID), true, info.Header.Job.CapacityBytes
	flags.engineFlags = flags.asBefore(info.Header)
	t, err := g.app.openSoak(ctx, address, flags)
	if err != nil {
		return err
	}
	if err := t.same(info.Header); err != nil {
		return errors.Join(err, t.close())
	}
	s := &soakSession{app: g.app, target: t, kinds: g.kinds, job: info.Header.Job, flags: flags, from: info.ID, before: info, header: info.Header, replaced: g.flags.Overwrite}
	g.sessions = append(g.sessions, s)
	return nil
}

// nsidFlag is a namespace identifier on the command line: never 0.
type nsidFlag uint32

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *nsidFlag) UnmarshalText(text []byte) error {
	var v uint32
	if _, err := fmt.Sscanf(string(text), "%d", &v); err != nil || fmt.Sprint(v) != string(text) || v == 0 || v == nvmespec.BroadcastNSID {
		return fmt.Errorf("%q is no namespace: 1 or more", text)
	}
	*n = nsidFlag(v)
	return nil
}

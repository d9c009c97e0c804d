package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"nvop/nvmeioctl/nvmetest/vm"
)

// tcpSpecCases judge and change a served drive by a spec through the kernel.
func tcpSpecCases() []vm.Case {
	cases := []vm.Case{
		{Name: "tcp/spec-audit", Limit: 3 * time.Minute, Run: guestTCPAudit},
		{Name: "tcp/spec-snapshot-without-root", Limit: 2 * time.Minute, Run: guestTCPSnapshot},
	}
	for _, c := range []struct {
		step opStep
		end  string
	}{
		// Kills at the other steps: tcp/fw-kill-at-..., tcp/kill-at-..., and all of
		// them in TestKill_spec.
		{opStep{"setfeature", "set power"}, "resume"},
		{opStep{"format", "format namespace"}, "rollback"},
	} {
		cases = append(cases, vm.Case{Name: "tcp/spec-kill-at-" + c.step.command + "-" + c.end, Limit: 2 * time.Minute,
			Run: func(t *testing.T) { guestTCPSpecKilled(t, c.step, c.end) }})
	}
	return cases
}

// auditPolicy is what the audit judges, each a fact that the other tools have too.
const auditPolicy = `version: 1
namespaces: [{size: max, lba: {data: 512, metadata: 0}, shared: false}]
power: {state: 0}
features:
  temperature_threshold: {over: 73}
  interrupt_coalescing: {threshold: 1, time_us: 0}
  arbitration: {burst_log2: 7}
firmware: {revision: 0B100100}
health: {used_percent_max: 100, spare_percent_min: 5, media_errors_max: 0, unsafe_shutdowns_max: 1000, temperature_celsius_max: 80, critical_warnings: false}
`

// auditByOthers fetches the same facts with nvme-cli and smartctl and judges them
// with jq, as such scripts are written. $1 is the controller.
const auditByOthers = `set -e
d=$1
c=$(nvme id-ctrl $d -o json)
echo "$c" | jq -e '(.fr|gsub(" +$";""))=="0B100100"'
nvme list-ns $d --all -o json | jq -e '.nsid_list|length==1'
n=$(nvme id-ns $d -n 1 --force -o json)
echo "$n" | jq -e '.flbas==0 and .nsze==.ncap and .nmic==0 and .dps==0'
jq -en --argjson c "$c" --argjson n "$n" '($n.nsze*512)==($c.tnvmcap|tonumber)'
nvme list-ctrl $d -n 1 -o json | jq -e 'length>0'
nvme get-feature $d -f 2 | grep -Eqi 'value:(0x)?0+$'
nvme get-feature $d -f 4 | grep -Eqi 'value:(0x)?0*15a$'
nvme get-feature $d -f 8 | grep -Eqi 'value:(0x)?0+$'
nvme get-feature $d -f 1 | grep -Eqi 'value:(0x)?0*7$'
nvme fw-log $d -o json | jq -e '.[]|.["Active Firmware Slot (afi)"]//.afi!=null'
smartctl -j -a $d | jq -e '.nvme_smart_health_information_log|.percentage_used<=100 and .available_spare>=5 and .media_errors==0 and .unsafe_shutdowns<=1000 and .temperature<=80 and .critical_warning==0'
`

// used runs a program and says what processor time it took, its children's too.
func used(t *testing.T, name string, args ...string) (time.Duration, ran) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+stateDir(t), "GOMAXPROCS=1")
	var out, errout syncBuffer
	cmd.Stdout, cmd.Stderr = &out, &errout
	_ = cmd.Run() // how it ended is in its state
	if cmd.ProcessState == nil {
		t.Fatalf("%s did not start", name)
	}
	r := ran{stdout: out.String(), stderr: errout.String(), code: cmd.ProcessState.ExitCode()}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), r
}

// adminCommands has the kernel trace what it sends. What it returns counts the
// admin commands since it was called last, without the kernel's own keep-alives.
func adminCommands(t *testing.T) func() int {
	t.Helper()
	const tracing = "/sys/kernel/tracing"
	if _, err := os.Stat(tracing + "/trace"); err != nil {
		tool(t, "mount", "-t", "tracefs", "tracefs", tracing)
	}
	set := func(file, value string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(tracing, file), []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	set("events/nvme/nvme_setup_cmd/enable", "1")
	t.Cleanup(func() { set("events/nvme/nvme_setup_cmd/enable", "0") })
	set("trace", "")
	return func() int {
		t.Helper()
		text, err := os.ReadFile(tracing + "/trace")
		if err != nil {
			t.Fatal(err)
		}
		set("trace", "")
		n := 0
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "qid=0") && !strings.Contains(line, "keep_alive") {
				n++
			}
		}
		return n
	}
}

// guestTCPAudit compares an audit with the same facts fetched by other tools:
// verdict, processor time and number of admin commands.
func guestTCPAudit(t *testing.T) {
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "AUD1"))
	node := s.connect(t)
	policy, script := filepath.Join(stateDir(t), "policy.yaml"), filepath.Join(stateDir(t), "audit.sh")
	for path, content := range map[string]string{policy: auditPolicy, script: auditByOthers} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	spec := filepath.Join(stateDir(t), "init.yaml")
	want(t, 0, "spec", "init", node, "--out", spec)
	want(t, 0, "audit", "-f", spec, node)
	if doc := document(t, "plan", node, "-f", spec); text(doc["already_so"]) != "true" {
		t.Errorf("the spec the drive has is not what it has: %v", doc["steps"])
	}
	count := adminCommands(t)
	var ours, theirs time.Duration
	var ourCommands, theirCommands int
	const rounds = 3
	for range rounds {
		cpu, r := used(t, os.Getenv(envBinary), "audit", "-f", policy, node, "-o", "json")
		if r.code != 0 {
			t.Fatalf("nvop audit: %v", r)
		}
		ours, ourCommands = ours+cpu, ourCommands+count()
		cpu, r = used(t, "sh", script, node)
		if r.code != 0 {
			t.Fatalf("the same by nvme-cli, smartctl and jq: %v", r)
		}
		theirs, theirCommands = theirs+cpu, theirCommands+count()
	}
	t.Logf("FIGURE audit of one drive: nvop %v of processor time and %d admin commands; nvme-cli, smartctl and jq %v and %d; ratio %.1f",
		ours/rounds, ourCommands/rounds, theirs/rounds, theirCommands/rounds, float64(theirs)/float64(ours))
	if ourCommands == 0 || theirs < ours {
		t.Errorf("%d admin commands were seen; %v against %v of processor time", ourCommands, ours, theirs)
	}
	// Both notice what changes.
	tool(t, "nvme", "set-feature", node, "--feature-id=2", "--value=2")
	if r := want(t, 3, "audit", "-f", policy, node); !strings.Contains(r.stdout, "power.state") {
		t.Errorf("the audit does not name power.state: %v", r)
	}
}

// guestTCPSnapshot: without root a snapshot has what the kernel gives away, and says
// what it has not.
func guestTCPSnapshot(t *testing.T) {
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "SNAP1"))
	node := s.connect(t)
	whole := document(t, "snapshot", node)
	if n := len(objects(t, whole, "identify_namespaces")); n != 1 {
		t.Errorf("%d namespaces in the snapshot", n)
	}
	// The program's own folder is not everybody's.
	program, err := os.ReadFile(os.Getenv(envBinary))
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join("/run", "nvop-snapshot")
	if err := os.WriteFile(binary, program, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o600, 0o666} {
		if err := os.Chmod(node, mode); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(binary, "snapshot", node, "-o", "json")
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("mode %o: %v %s", mode, err, out)
		}
		doc := decodeOne(t, string(out))
		if text(dig(doc, "identity.serial")) != "SNAP1" || len(objects(t, doc, "not_read")) == 0 {
			t.Errorf("mode %o: %s", mode, out)
		}
		if _, controller := doc["controller"]; controller != (mode == 0o666) {
			t.Errorf("mode %o: identify controller read: %v", mode, controller)
		}
	}
}

// guestTCPSpecKilled kills a change of firmware, power, format and namespaces at one
// of its steps, while the drive carries out the command, and goes on or back.
func guestTCPSpecKilled(t *testing.T, step opStep, end string) {
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "SPEC1"))
	node := s.connect(t)
	serial := []string{"--allow-fabrics", "--confirm-serial", "SPEC1"}
	want(t, 0, append([]string{"op", "set", node, "--size", "3.2TB"}, serial...)...)
	want(t, 0, append([]string{"ns", "create", node, "--size", "3.2TB"}, serial...)...)
	before := geometry(t, node)
	s.stop(t)
	s.disconnect(t)
	which := "1st"
	if step.command == "setfeature" {
		which = "every" // the kernel sets features too, when it connects
	}
	s = serve(t, s.file, "--fault", "delay 1500ms "+which+" "+step.command)
	node = s.connect(t)
	firmwareImage(t, newRevision)
	spec := filepath.Join(stateDir(t), "spec.yaml")
	text := fmt.Sprintf(`version: 1
firmware: {revision: %s, image: %s.bin}
power: {state: 1}
namespaces:
  - {size: 3.2TB, lba: {data: 4096}}
  - {size: 2TB, lba: {data: 512}}
replace: [2]
`, newRevision, newRevision)
	if err := os.WriteFile(spec, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, said := start(t, append([]string{"apply", node, "-f", spec}, serial...)...)
	for range 600 { // a busy machine takes its time to get there
		if strings.Contains(said.String(), step.says) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	said.waitFor(t, step.says)
	time.Sleep(200 * time.Millisecond) // into the command that is held back
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Fatalf("apply was done before it was killed:\n%s", said.String())
	}
	r := nvop(t, end, "--confirm-serial", "SPEC1")
	// 8: the new firmware waits for a reset, or the old one does.
	if r.code != 8 && !(end == "rollback" && r.code == 0) {
		t.Fatalf("%s: want exit code 8, got %v", end, r)
	}
	if got := geometry(t, node); end == "rollback" && got != before || end == "resume" && (got == before || !strings.Contains(got, " 4096")) {
		t.Errorf("after %s: %q, before it was %q\n%v", end, got, before, r)
	}
	if story := want(t, 0, "journal", "show", "t3").stdout; !strings.Contains(story, step.says) && !strings.Contains(story, "format") {
		t.Errorf("the journal does not tell the story:\n%s", story)
	}
	want(t, 0, "journal", "verify")
}

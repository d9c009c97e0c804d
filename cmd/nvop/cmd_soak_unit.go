package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"nvop/cmd/nvop/internal/render"
)

type soakUnitCmd struct {
	ConfirmSerial []string `help:"Agree to the drives with these serial numbers (default: those of the runs that can be resumed, which are then named in the unit)." placeholder:"SERIAL" sep:","`
	watchFlags
}

func (soakUnitCmd) Help() string {
	return `The unit carries every interrupted soak on after a restart of the machine. Installing it is consent to write to the drives it names.

Example:
  nvop soak unit >/etc/systemd/system/nvop-soak.service && systemctl daemon-reload && systemctl enable nvop-soak`
}

// unitResult is the unit.
type unitResult struct {
	Schema  string   `json:"schema"`
	Serials []string `json:"serials"`
	Journal string   `json:"journal"`
	Unit    string   `json:"unit"`
}

func (r unitResult) Text(p *render.Page) { p.Line("%s", strings.TrimRight(r.Unit, "\n")) }

func (c soakUnitCmd) Run(ctx context.Context, a *app) error {
	path, err := a.journalFile()
	if err != nil {
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	serials := slices.Clone(c.ConfirmSerial)
	if len(serials) == 0 {
		infos, err := a.allRuns(ctx)
		if err != nil {
			return err
		}
		for _, info := range infos {
			if info.State.Resumable() && !passing(info.Header.Address) && !slices.Contains(serials, info.Header.Serial) {
				serials = append(serials, info.Header.Serial)
			}
		}
	}
	if len(serials) == 0 {
		return fmt.Errorf("no soak in %s can be resumed: start one, or name its drives with --confirm-serial", path)
	}
	args := []string{program, "--journal", path, "soak", "resume", "--all", "--confirm-serial", strings.Join(serials, ",")}
	if len(c.OnEvent) != 0 {
		flags, err := eventArguments(c.OnEvent)
		if err != nil {
			return err
		}
		args = append(args, flags...)
	}
	if c.Metrics != "" {
		if err := a.checkMetrics(c.Metrics); err != nil {
			return err
		}
		args = append(args, "--metrics="+c.Metrics)
	}
	return a.print(unitResult{Schema: "nvop.soak-unit/1", Serials: serials, Journal: path, Unit: unitText(path, args)})
}

// unitText is the unit file. The process ends as by Ctrl-C, with everything saved;
// 7 (can be resumed) is then no failure. A drive that was not there yet is looked
// for again later; what was refused is not asked again.
func unitText(journal string, args []string) string {
	var quoted []string
	for _, x := range args {
		quoted = append(quoted, unitQuote(x))
	}
	return `[Unit]
Description=NVMe soaks that were interrupted (nvop)
RequiresMountsFor=` + unitQuote(filepath.Dir(journal)) + `
After=local-fs.target systemd-udev-settle.service
Wants=systemd-udev-settle.service

[Service]
Type=exec
ExecStart=` + strings.Join(quoted, " ") + `
KillMode=mixed
KillSignal=SIGTERM
TimeoutStopSec=120
SuccessExitStatus=7
Restart=on-failure
RestartSec=300
RestartPreventExitStatus=4 80
StandardOutput=journal
StandardError=journal
LimitMEMLOCK=infinity
OOMScoreAdjust=-500

[Install]
WantedBy=multi-user.target
`
}

// unitQuote quotes an argument for systemd: % and $ are its own, and so are quotes
// and backslashes.
func unitQuote(s string) string {
	s = strings.NewReplacer("%", "%%", "$", "$$").Replace(s)
	if s != "" && !strings.ContainsAny(s, " \t\"'\\;\n") {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(s) + `"`
}

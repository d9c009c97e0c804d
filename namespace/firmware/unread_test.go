package firmware_test

import (
	"strings"
	"testing"

	"nvop/namespace/firmware"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/sim"
)

// withoutLog answers that a log does not exist.
func withoutLog(id nvmespec.LogID) func(*nvmeioctl.Command) (bool, nvmespec.Status, error) {
	return func(cmd *nvmeioctl.Command) (bool, nvmespec.Status, error) {
		if cmd.Opcode == nvmespec.AdminGetLogPage && nvmespec.LogID(cmd.CDW10&0xFF) == id {
			return false, 0x4109, nil
		}
		return true, 0, nil
	}
}

// TestPlan_unreadLogs: a log that cannot be read does not say that nothing is in
// progress. It refuses an update until that is accepted, before and while it goes on.
func TestPlan_unreadLogs(t *testing.T) {
	for name, c := range map[string]struct {
		log      nvmespec.LogID
		activate firmware.Activation
		refused  bool
		text     string
	}{
		"sanitize, staging":    {nvmespec.LogIDSanitize, firmware.ActivateStage, true, "whether a sanitize is in progress could not be read"},
		"sanitize, reset":      {nvmespec.LogIDSanitize, firmware.ActivateReset, true, "whether a sanitize"},
		"self-test, staging":   {nvmespec.LogIDSelfTest, firmware.ActivateStage, false, ""},
		"self-test, reset":     {nvmespec.LogIDSelfTest, firmware.ActivateReset, true, "whether a self-test is in progress could not be read"},
		"another log, a reset": {nvmespec.LogIDError, firmware.ActivateReset, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			// A drive that has both logs, one of which it refuses.
			prepared := func() (*rig, firmware.State, firmware.Want, firmware.Image) {
				r := newRig(t, func(p *sim.Profile, _ *sim.Options) {
					p.Sanitize, p.AdminCommands = 7, p.AdminCommands|uint16(nvmespec.AdminSelfTest)
				})
				img := r.image("0B200200", 8192)
				r.fault = withoutLog(c.log)
				s, err := firmware.Read(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				return r, s, firmware.Want{Image: img.Path, Revision: "0B200200", Activate: c.activate}, img
			}
			r, s, w, img := prepared()
			_, err := firmware.Plan(s, w, &img, firmware.Options{})
			if (err != nil) != c.refused || err != nil && (exitCode(err) != 4 || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), "--accept unknown")) {
				t.Errorf("plan: %v", err)
			}
			accepted, err := firmware.Plan(s, w, &img, firmware.Options{AcceptUnread: true})
			if err != nil {
				t.Fatalf("accepted: %v", err)
			}
			// What could be read when it was planned and cannot when it is carried out.
			_, err = r.run(accepted)
			if (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("carried out: %v", err)
			}
			if c.log == nvmespec.LogIDSanitize && len(r.sent) != 0 {
				t.Errorf("sent %+v", r.sent)
			}
			r, s, w, img = prepared()
			if accepted, err = firmware.Plan(s, w, &img, firmware.Options{AcceptUnread: true}); err != nil {
				t.Fatal(err)
			}
			runner := r.runner()
			runner.Registry = firmware.Executors(firmware.ExecutorOptions{AcceptUnread: true})
			if _, err := runner.Run(t.Context(), r.transaction(accepted)); err != nil {
				t.Errorf("accepted and carried out: %v", err)
			}
		})
	}
}

package sim

import (
	"context"
	"slices"

	"nvop/nvmeioctl"
)

// maxChangedNamespaces is how many NSIDs the changed namespace list holds.
const maxChangedNamespaces = 1024

// Kinds of asynchronous events (NVMe Base 2.x, "Asynchronous Event Request").
const (
	eventSMART            = 1
	eventNotice           = 2
	infoReliability       = 0
	infoTemperature       = 1
	infoSpare             = 2
	infoNamespaceChanged  = 0
	eventsKept            = 64
	configNamespace       = 1 << 8
	configCriticalWarning = 0xFF
)

// namespaceChanged tells the controllers in mask that a namespace they have,
// or had, is another now.
func (st *state) namespaceChanged(mask uint8, nsid uint32) {
	for i := range st.Controllers {
		if mask>>i&1 == 0 {
			continue
		}
		c := &st.Controllers[i]
		c.addChanged(nsid)
		if c.feature(&st.Profile, featureEvents)&configNamespace != 0 {
			c.post(event{Type: eventNotice, Info: infoNamespaceChanged, LogPage: logChanged})
		}
	}
}

// addChanged puts an NSID on the changed namespace list. More than fit are
// told by the single entry FFFFFFFFh.
func (c *controllerState) addChanged(nsid uint32) {
	if len(c.ChangedNamespaces) == 1 && c.ChangedNamespaces[0] == nsidAll {
		return
	}
	i, found := slices.BinarySearch(c.ChangedNamespaces, nsid)
	switch {
	case found:
	case len(c.ChangedNamespaces) == maxChangedNamespaces:
		c.ChangedNamespaces = []uint32{nsidAll}
	default:
		c.ChangedNamespaces = slices.Insert(c.ChangedNamespaces, i, nsid)
	}
}

// post queues an event unless one that names the same log page is still to be
// cleared by reading it.
func (c *controllerState) post(e event) {
	if slices.Contains(c.Masked, e.LogPage) || len(c.Events) >= eventsKept {
		return
	}
	c.Masked = append(c.Masked, e.LogPage)
	c.Events = append(c.Events, e)
}

// cleared says that the host has read a log page, so its events may come again.
func (c *controllerState) cleared(logPage uint8) {
	c.Masked = slices.DeleteFunc(c.Masked, func(p uint8) bool { return p == logPage })
	c.Events = slices.DeleteFunc(c.Events, func(e event) bool { return e.LogPage == logPage })
}

// warn posts SMART events for critical warnings that the host asked to hear of.
func (c *controllerState) warn(p *Profile, warnings uint8) {
	warnings &= uint8(c.feature(p, featureEvents))
	info := uint8(infoReliability)
	switch {
	case warnings == 0:
		return
	case warnings&1 != 0:
		info = infoSpare
	case warnings&2 != 0:
		info = infoTemperature
	}
	c.post(event{Type: eventSMART, Info: info, LogPage: logSMART})
}

// notify wakes those who wait for an event.
func (d *Drive) notify() {
	close(d.wake)
	d.wake = make(chan struct{})
}

// nextEvent waits for an event of one controller.
func (d *Drive) nextEvent(ctx context.Context, index int) (nvmeioctl.Event, error) {
	for {
		d.mu.Lock()
		if err := d.gone(); err != nil {
			d.mu.Unlock()
			return nvmeioctl.Event{}, err
		}
		d.settle()
		if d.off {
			d.mu.Unlock()
			return nvmeioctl.Event{}, d.unpowered()
		}
		c := &d.st.Controllers[index]
		if len(c.Events) > 0 {
			e := c.Events[0]
			c.Events = slices.Delete(c.Events, 0, 1)
			d.mu.Unlock()
			return nvmeioctl.Event{Type: e.Type, Info: e.Info, LogPage: e.LogPage}, nil
		}
		wake := d.wake
		d.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
			return nvmeioctl.Event{}, ctx.Err()
		}
	}
}

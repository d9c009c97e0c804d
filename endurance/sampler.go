package endurance

import "nvop/endurance/run"

// edgeLead is how many seconds before an expected edge of a slow counter, and
// at most how many after, it is read every second.
const edgeLead = 3

// poll decides when health is read: at a steady interval, and every second
// around the moment at which a media counter that changes more rarely than that
// is expected to change. Reading costs the drive something, so it is not done
// every second throughout.
type poll struct {
	interval int64 // seconds
	next     int64
	last     run.Uint128
	known    bool
	// edge is the second at which the counter last changed, and period its
	// distance from the change before; 0 when not known.
	edge, period int64
	lastTaken    int64
}

func newPoll(intervalSeconds int64) poll { return poll{interval: max(intervalSeconds, 1)} }

// due says whether a sample is to be taken in a second.
func (p *poll) due(second int64) bool { return second >= p.next }

// taken notes a sample and plans the next.
func (p *poll) taken(second int64, s *run.Sample) {
	p.next = second + p.interval
	if s.Failure != "" || len(s.Media) == 0 {
		return
	}
	units := s.Media[0].Units
	if p.known && units != p.last {
		// A change within one interval says that the counter is not slow.
		if p.edge != 0 && second-p.edge > p.interval+1 {
			p.period = second - p.edge
		} else if p.edge != 0 {
			p.period = 0
		}
		p.edge = second
	}
	p.last, p.known, p.lastTaken = units, true, second
	if p.period == 0 {
		return
	}
	expected := p.edge + p.period
	switch {
	case second < expected-edgeLead:
		p.next = min(p.next, expected-edgeLead)
	case second < expected+edgeLead:
		p.next = second + 1
	}
}

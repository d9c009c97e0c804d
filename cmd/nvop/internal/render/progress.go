package render

import (
	"fmt"
	"io"
	"sync"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// Progress shows how far something is: a bar on a terminal, a line now and then
// elsewhere. It writes to where notes go, never into a result.
type Progress struct {
	w     io.Writer
	every int

	mu    sync.Mutex
	text  string
	calls int
	bars  *mpb.Progress
	bar   *mpb.Bar
}

// NewProgress starts one. every says which share of the calls of Set is written
// as a line where w is no terminal: one in so many, the first included.
func NewProgress(w io.Writer, terminal bool, every int) *Progress {
	p := &Progress{w: w, every: max(every, 1)}
	if terminal {
		p.bars = mpb.New(mpb.WithOutput(w), mpb.WithWidth(24))
		p.bar = p.bars.AddBar(1000, mpb.BarRemoveOnComplete(), mpb.AppendDecorators(decor.Any(func(decor.Statistics) string {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.text
		})))
	}
	return p
}

// Set shows permille of 1000 and what is going on.
func (p *Progress) Set(permille int64, text string) {
	p.mu.Lock()
	p.text = text
	n := p.calls
	p.calls++
	p.mu.Unlock()
	if p.bar != nil {
		p.bar.SetCurrent(min(max(permille, 0), 999))
		return
	}
	if n%p.every == 0 {
		fmt.Fprintf(p.w, "%5.1f %%  %s\n", float64(permille)/10, text)
	}
}

// Close takes the bar away.
func (p *Progress) Close() {
	if p.bar != nil {
		p.bar.Abort(true)
		p.bars.Wait()
	}
}

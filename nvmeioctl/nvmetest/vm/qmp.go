package vm

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// QMP is QEMU's machine protocol: how the host changes a running machine, for
// example the temperature its drive reports. It is safe for concurrent use.
type QMP struct {
	mu sync.Mutex
	w  io.Writer
	r  *bufio.Reader
}

// qmpReply is any message of QEMU: greeting, event, success or error.
type qmpReply struct {
	Return json.RawMessage `json:"return"`
	Event  string          `json:"event"`
	QMP    json.RawMessage `json:"QMP"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
}

// newQMP wraps the pipes of a QEMU that has just started with -qmp stdio.
func newQMP(w io.Writer, r io.Reader) *QMP { return &QMP{w: w, r: bufio.NewReader(r)} }

// handshake reads the greeting and leaves the mode in which only
// qmp_capabilities is accepted.
func (q *QMP) handshake() error {
	var hello qmpReply
	if err := q.receive(&hello); err != nil {
		return err
	}
	if hello.QMP == nil {
		return fmt.Errorf("vm: qmp: no greeting")
	}
	_, err := q.Execute("qmp_capabilities", nil)
	return err
}

// Execute sends one command and returns its result. Events that arrive before it
// are dropped.
func (q *QMP) Execute(command string, arguments map[string]any) (json.RawMessage, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	message := map[string]any{"execute": command}
	if arguments != nil {
		message["arguments"] = arguments
	}
	b, err := json.Marshal(message)
	if err != nil {
		return nil, fmt.Errorf("vm: qmp %s: %w", command, err)
	}
	if _, err := q.w.Write(append(b, '\n')); err != nil {
		return nil, fmt.Errorf("vm: qmp %s: %w", command, err)
	}
	for {
		var reply qmpReply
		if err := q.receive(&reply); err != nil {
			return nil, fmt.Errorf("vm: qmp %s: %w", command, err)
		}
		switch {
		case reply.Error != nil:
			return nil, fmt.Errorf("vm: qmp %s: %s: %s", command, reply.Error.Class, reply.Error.Desc)
		case reply.Return != nil:
			return reply.Return, nil
		}
	}
}

// SetProperty sets a property of a device that was given an id on QEMU's command
// line.
func (q *QMP) SetProperty(id, property string, value any) error {
	_, err := q.Execute("qom-set", map[string]any{
		"path": "/machine/peripheral/" + id, "property": property, "value": value,
	})
	return err
}

func (q *QMP) receive(reply *qmpReply) error {
	line, err := q.r.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if err := json.Unmarshal(line, reply); err != nil {
		return fmt.Errorf("message %q: %w", line, err)
	}
	return nil
}

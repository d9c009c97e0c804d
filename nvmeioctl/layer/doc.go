// Package layer decorates devices: [Trace] writes down every command, [DryRun]
// reads the drive and changes nothing, [Guard] refuses what was not consented
// to, [Fault] makes a drive misbehave in a test. Each is a Device around a
// Device.
//
// A decorator must not interpret what the drive answers beyond what it is for.
// Order matters: the guard goes outermost, so that what it refuses is neither
// sent nor recorded.
package layer

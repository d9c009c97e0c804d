package run

// MediaCounter is a counter of what was written to the flash.
type MediaCounter struct {
	// Source names log and field: "endurance group: media units written",
	// "OCP C0h: physical media units written", "Memblaze CAh: F4h".
	Source string `json:"source"`
	// Units is the counter's value and UnitBytes what one unit stands for.
	Units     Uint128 `json:"units"`
	UnitBytes uint64  `json:"unit_bytes"`
}

// HostCounter is a counter of what the host wrote.
type HostCounter struct {
	Source    string `json:"source"`
	UnitBytes uint64 `json:"unit_bytes"`
	// Before and After are its values read before and after the media counters
	// (host, media, host), since no drive answers both in one command.
	Before Uint128 `json:"before"`
	After  Uint128 `json:"after"`
}

// Sample is one reading of a drive's health.
type Sample struct {
	// Second of the run, and calendar time, when reading began.
	Second     int64 `json:"second"`
	WallUnixNS int64 `json:"wall_unix_ns"`
	// DurationNS is how long the reading took, on the engine's clock.
	DurationNS int64 `json:"duration_ns"`
	// EngineWriteBytes is what the run had written when the sample was taken,
	// by the engine's own count.
	EngineWriteBytes uint64 `json:"engine_write_bytes"`
	// Failure says why nothing was read; everything below is then not set.
	Failure string `json:"failure,omitempty"`

	// Host are the counters of bytes written by the host, and Media those of
	// the flash, in order of preference; empty when the drive reports none.
	Host  []HostCounter  `json:"host,omitempty"`
	Media []MediaCounter `json:"media,omitempty"`
	// HostReadUnits is data units read, of 512,000 bytes.
	HostReadUnits Uint128 `json:"host_read_units"`

	// PercentageUsed is 0 to 255; it may exceed 100 and stays at 255.
	PercentageUsed uint8 `json:"percentage_used"`
	// SparePercent and SpareThresholdPercent are 0 to 100.
	SparePercent          uint8 `json:"spare_percent"`
	SpareThresholdPercent uint8 `json:"spare_threshold_percent"`
	// SpareAvailable is false when the drive reports neither.
	SpareAvailable bool `json:"spare_available"`
	// CriticalWarning is the bit field of SMART byte 0.
	CriticalWarning uint8 `json:"critical_warning"`
	// TemperatureKelvin is the composite temperature; 0 when not reported.
	TemperatureKelvin   uint16  `json:"temperature_kelvin"`
	MediaErrors         Uint128 `json:"media_errors"`
	UnsafeShutdowns     Uint128 `json:"unsafe_shutdowns"`
	PowerCycles         Uint128 `json:"power_cycles"`
	PowerOnHours        Uint128 `json:"power_on_hours"`
	ErrorLogEntries     Uint128 `json:"error_log_entries"`
	WarningTempMinutes  uint32  `json:"warning_temp_minutes"`
	CriticalTempMinutes uint32  `json:"critical_temp_minutes"`
	// ThermalTransitions counts both thermal management temperature transition
	// counts; ThermalSeconds both total times.
	ThermalTransitions uint64 `json:"thermal_transitions"`
	ThermalSeconds     uint64 `json:"thermal_seconds"`

	// Firmware and Format: a change of either begins a new epoch.
	Firmware string `json:"firmware,omitempty"`
	Format   string `json:"format,omitempty"`
	// Identity is what binds the sample to a drive: subsystem NQN and serial.
	Identity string `json:"identity,omitempty"`
}

// TemperatureCelsius is the composite temperature; false when not reported.
func (s *Sample) TemperatureCelsius() (int32, bool) {
	return int32(s.TemperatureKelvin) - 273, s.Failure == "" && s.TemperatureKelvin != 0
}

// HealthPercent is 100 - percentage used, which is negative on a drive worn
// beyond its rating; false when nothing was read.
func (s *Sample) HealthPercent() (int64, bool) {
	return 100 - int64(s.PercentageUsed), s.Failure == ""
}

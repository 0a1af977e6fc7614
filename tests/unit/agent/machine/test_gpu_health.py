"""What may be wrong with a GPU. The listings have those elements of nvidia-smi's XML that are read,
as three generations of drivers write them, and a healthy H200 with the driver 580 has printed; no
real sick GPU has confirmed the values."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfdeploy.agent.machine.devices import gpu_health

DRIVER_390 = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v9.dtd">
<nvidia_smi_log>
  <driver_version>390.116</driver_version>
  <gpu id="00000000:3B:00.0">
    <product_name>Tesla K40m</product_name>
    <pci><pci_gpu_link_info><link_widths>
      <max_link_width>16x</max_link_width><current_link_width>16x</current_link_width>
    </link_widths></pci_gpu_link_info></pci>
    <clocks_throttle_reasons>
      <clocks_throttle_reason_gpu_idle>Active</clocks_throttle_reason_gpu_idle>
      <clocks_throttle_reason_applications_clocks_setting>Active
      </clocks_throttle_reason_applications_clocks_setting>
      <clocks_throttle_reason_hw_slowdown>Not Active</clocks_throttle_reason_hw_slowdown>
    </clocks_throttle_reasons>
    <ecc_errors>
      <volatile><single_bit><total>7</total></single_bit>
        <double_bit><device_memory>0</device_memory><total>0</total></double_bit></volatile>
      <aggregate><double_bit><total>9</total></double_bit></aggregate>
    </ecc_errors>
    <retired_pages>
      <double_bit_retirement><retired_count>0</retired_count></double_bit_retirement>
      <pending_blacklist>No</pending_blacklist>
    </retired_pages>
    <temperature><gpu_temp>45 C</gpu_temp><gpu_temp_slow_threshold>90 C</gpu_temp_slow_threshold>
    </temperature>
  </gpu>
</nvidia_smi_log>"""
DRIVER_550 = """<?xml version="1.0" ?>
<nvidia_smi_log>
  <driver_version>550.54.15</driver_version>
  <gpu id="00000000:19:00.0">
    <product_name>NVIDIA H100 80GB HBM3</product_name>
    <pci><pci_gpu_link_info><link_widths>
      <max_link_width>16x</max_link_width><current_link_width>16x</current_link_width>
    </link_widths></pci_gpu_link_info></pci>
    <clocks_event_reasons>
      <clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
      <clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>
      <clocks_event_reason_hw_slowdown>Not Active</clocks_event_reason_hw_slowdown>
      <clocks_event_reason_hw_thermal_slowdown>Not Active</clocks_event_reason_hw_thermal_slowdown>
    </clocks_event_reasons>
    <ecc_errors>
      <volatile><sram_correctable>4</sram_correctable>
        <sram_uncorrectable_parity>0</sram_uncorrectable_parity>
        <sram_uncorrectable_secded>0</sram_uncorrectable_secded>
        <dram_uncorrectable>0</dram_uncorrectable></volatile>
      <aggregate><dram_uncorrectable>5</dram_uncorrectable></aggregate>
    </ecc_errors>
    <retired_pages>
      <double_bit_retirement><retired_count>N/A</retired_count></double_bit_retirement>
      <pending_retirement>N/A</pending_retirement>
    </retired_pages>
    <remapped_rows><remapped_row_pending>No</remapped_row_pending>
      <remapped_row_failure>No</remapped_row_failure></remapped_rows>
    <temperature><gpu_temp>41 C</gpu_temp><gpu_temp_tlimit>46 C</gpu_temp_tlimit></temperature>
  </gpu>
</nvidia_smi_log>"""
DRIVER_580 = (Path(__file__).parent / "nvidia-smi-580.xml").read_text()
GEFORCE = """<nvidia_smi_log><gpu id="00000000:01:00.0">
  <product_name>NVIDIA GeForce RTX 3090</product_name>
  <ecc_errors><volatile><dram_uncorrectable>N/A</dram_uncorrectable></volatile></ecc_errors>
  <remapped_rows>N/A</remapped_rows>
  <temperature><gpu_temp>51 C</gpu_temp><gpu_temp_slow_threshold>95 C</gpu_temp_slow_threshold>
  </temperature></gpu></nvidia_smi_log>"""


@pytest.mark.parametrize("listing", [DRIVER_390, DRIVER_550, DRIVER_580, GEFORCE])
def test_a_healthy_gpu_needs_no_words(listing):
    assert [*gpu_health.parse(listing, {})] == []


@pytest.mark.parametrize(
    ("listing", "healthy", "sick", "words"),
    [
        (DRIVER_390, "<total>0</total>", "<total>2</total>", "2 uncorrectable memory errors"),
        (DRIVER_390, "<retired_count>0", "<retired_count>3", "3 pages of its memory are retired"),
        (DRIVER_390, "blacklist>No", "blacklist>Yes", "replaced only after a reset"),
        (DRIVER_390, "slowdown>Not Active", "slowdown>Active", "throttled (hw slowdown)"),
        (DRIVER_390, "45 C", "91 C", "it has 91 C, and slows down from 90 C on"),
        (DRIVER_390, "<current_link_width>16x", "<current_link_width>4x", "has 4 of 16 lanes"),
        (DRIVER_550, "parity>0<", "parity>1<", "1 uncorrectable memory errors"),
        (DRIVER_550, "pending>No", "pending>Yes", "replaced only after a reset"),
        (DRIVER_550, "failure>No", "failure>Yes", "can't be replaced"),
        (DRIVER_550, "thermal_slowdown>Not Active", "thermal_slowdown>Active", "hw thermal slowdo"),
        (DRIVER_580, "secded>0<", "secded>2<", "2 uncorrectable"),
        (DRIVER_580, "tpc_repair_pending>No", "tpc_repair_pending>Yes", "only after a reset"),
        (DRIVER_580, "unrepairable_memory>No", "unrepairable_memory>Yes", "can't be replaced"),
        (DRIVER_580, "action>None", "action>Reset", "its driver asks for: Reset"),
    ],
)
def test_what_is_wrong_is_said_with_its_figures(listing, healthy, sick, words):
    assert healthy in listing
    [(_, sentence)] = gpu_health.parse(listing.replace(healthy, sick), {})
    assert words in sentence
    assert sentence.startswith("GPU 0 (")


def test_xids_of_the_kernels_log_belong_to_the_gpu_with_their_address():
    xids = {"0000:19:00": ["79", "94", "79"], "0000:3b:00": ["48"]}
    [(_, sentence)] = gpu_health.parse(DRIVER_550, xids)
    assert sentence == "GPU 0 (NVIDIA H100 80GB HBM3): the kernel has logged Xid 79, 94"
    assert "Xid 48" in next(gpu_health.parse(DRIVER_390, xids))[1]


def test_a_listing_of_some_gpus_has_their_indexes():
    sick = DRIVER_550.replace("pending>No", "pending>Yes")
    [(index, sentence)] = gpu_health.parse(sick, {}, [5])
    assert (index, sentence[:8]) == (5, "GPU 5 (N")


@pytest.mark.parametrize("listing", ["", "<", "NVIDIA-SMI has failed", "<nvidia_smi_log/>"])
def test_what_is_no_listing_says_nothing(listing):
    assert [*gpu_health.parse(listing, {})] == []


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("(PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off", {"0000:3b:00": ["79"]}),
        # An index out of range on an H200, whose next program ran well.
        ("(PCI:0000:00:06): 43, pid=2743, name=python3, channel 0x0000000a", {}),
    ],
)
def test_xids_are_read_from_lines_of_the_kernel(tmp_path, message, found):
    log = tmp_path / "kmsg"
    log.write_text(f"6,1,2,-;NVRM: Xid {message}\n")
    assert gpu_health.xids(str(log)) == found
    assert gpu_health.xids(str(tmp_path / "missing")) == {}

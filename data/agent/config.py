"""配置入口：安全阀在 safety.py 文件定义，取值在 agent.toml。"""

from settings import load_settings

SETTINGS = load_settings()

@echo off
rem Double-click me, or: start.bat test. Uses the py launcher: a bare "python" may open the Microsoft Store.
setlocal
cd /d "%~dp0"
chcp 65001 >nul
for %%V in (3.12 3.13 3.11) do (
    py -%%V -c "" >nul 2>nul && (
        py -%%V start.py %*
        goto done
    )
)
python -c "import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))" >nul 2>nul && (
    python start.py %*
    goto done
)
echo 没有找到 Python 3.11 到 3.13。请从 https://www.python.org/downloads/ 安装 3.12（勾选 py launcher），再运行 start.bat。
set RC=1
goto end
:done
set RC=%ERRORLEVEL%
:end
if "%~1"=="" pause
exit /b %RC%
